"""A smaller network from a larger one: where it starts, and what it learns from its teacher.

The student keeps some of the teacher's layers and, of each, the hidden units of the feed-forward network that carry most
of its output; head and last layer are the teacher's. It then learns at all positions what the teacher's last layer is
given, and at the masked sites the teacher's whole conditional beside the token that stood there.
"""

import torch
import torch.nn.functional as F

from glauber_lib.networks import HEADS, before_last_layer, last_layer_at


@torch.inference_mode()
def shrunk(teacher, layers, width, batches):
    """Weights of a DistilBERT with the teacher's `layers` and `width` hidden units in each feed-forward network.

    Parameters
    ----------
    teacher : transformers.DistilBertForMaskedLM
    layers : sequence of int
        The layers kept, from 0.
    width : int
    batches : iterable of torch.Tensor, int64[B, T]
        Token ids on which the size of a unit's part is measured: the root mean square of its activation times the norm
        of its column, the units with the largest being kept.

    Returns
    -------
    dict of str to torch.Tensor
    """
    units = [teacher.base_model.transformer.layer[number].ffn for number in layers]
    squares = [torch.zeros(ffn.lin2.in_features) for ffn in units]
    hooks = [
        ffn.lin2.register_forward_pre_hook(lambda _, given, total=total: total.add_(given[0].square().sum((0, 1))))
        for ffn, total in zip(units, squares, strict=True)
    ]
    for ids in batches:
        teacher.base_model(input_ids=ids)
    for hook in hooks:
        hook.remove()
    kept = {}
    for name, weight in teacher.state_dict().items():
        if not name.startswith("distilbert.transformer.layer."):
            kept[name] = weight
            continue
        number, rest = name.removeprefix("distilbert.transformer.layer.").split(".", 1)
        if int(number) not in layers:
            continue
        place = list(layers).index(int(number))
        part = squares[place].sqrt() * units[place].lin2.weight.norm(dim=0)
        largest = part.topk(width).indices.sort().values
        if rest.startswith("ffn.lin1"):
            weight = weight[largest]
        elif rest == "ffn.lin2.weight":
            weight = weight[:, largest]
        kept[f"distilbert.transformer.layer.{place}.{rest}"] = weight
    return {name: weight.clone() for name, weight in kept.items()}


def as_bert(weights):
    """Weights of a DistilBERT under the names of BERT, whose one token type is zero."""
    names = {
        "distilbert.": "bert.", "transformer.layer.": "encoder.layer.", "attention.q_lin": "attention.self.query",
        "attention.k_lin": "attention.self.key", "attention.v_lin": "attention.self.value",
        "attention.out_lin": "attention.output.dense", "sa_layer_norm": "attention.output.LayerNorm",
        "ffn.lin1": "intermediate.dense", "ffn.lin2": "output.dense", "output_layer_norm": "output.LayerNorm",
        "vocab_transform": "cls.predictions.transform.dense", "vocab_layer_norm": "cls.predictions.transform.LayerNorm",
        "vocab_projector.bias": "cls.predictions.bias", "vocab_projector.weight": "cls.predictions.decoder.weight",
    }  # fmt: skip
    renamed = {}
    for name, weight in weights.items():
        for old, new in names.items():
            name = name.replace(old, new)
        renamed[name] = weight
    renamed["bert.embeddings.token_type_embeddings.weight"] = torch.zeros(1, 768)
    return renamed


def distillation_loss(student, teacher, ids, sites, answers):
    """What a student is trained on, in nats but for the last term.

    Half the Kullback-Leibler divergence of the student's conditionals from the teacher's at `sites`, half the cross-entropy
    of `answers`, and the squared distance of the vectors that the two last layers are given, relative to their variance.
    """
    given = before_last_layer(student, ids)
    scores = HEADS["distilbert"](student, last_layer_at(student, given, sites)).log_softmax(-1)
    with torch.no_grad():
        wanted = before_last_layer(teacher, ids)
        law = HEADS["distilbert"](teacher, last_layer_at(teacher, wanted, sites)).log_softmax(-1)
    divergence = (law.exp() * (law - scores)).sum(-1).mean()
    distance = F.mse_loss(given, wanted) / wanted.var()
    return 0.5 * (divergence + F.nll_loss(scores.flatten(0, 1), answers.flatten())) + distance
