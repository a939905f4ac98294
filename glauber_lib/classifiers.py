"""Hugging Face pipelines of classifiers of texts, as the published scorers of topics and sentiment are."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, pipeline

from glauber_lib.checksums import WeightsDigest, check_weights, describe_computation
from glauber_lib.loading import load_checkpoint
from glauber_lib.modules import describe_reader
from glauber_lib.networks import check_evaluating, n_positions
from glauber_lib.vocabularies import refuse_cut_texts, refuse_one_text


class Classifier:
    """A classifier of texts, a network with a tokenizer, in the pipeline of a task.

    Parameters
    ----------
    task : str
        As transformers calls it: ``"text-classification"``, ``"zero-shot-classification"``.
    name : str or Path
        A name on the hub or a folder.
    refusal : str
        What the error begins with if there is none.
    revision : str, optional
        Pinned revision of a hub model.
    **options
        Of the pipeline.

    Raises
    ------
    ValueError
        If there is no such model (see `hub.locate`).
    """

    def __init__(self, task: Any, name: str | Path, refusal: str, revision: str | None = None, **options: Any):
        self.name = name
        model, tokenizer = load_checkpoint(AutoModelForSequenceClassification, name, refusal, revision)
        self.pipeline: Any = pipeline(task, model=model, tokenizer=tokenizer, **options)
        self._checksum = WeightsDigest()

    @property
    def model(self) -> Any:
        """The network that the pipeline asks."""
        return self.pipeline.model

    @property
    def tokenizer(self) -> Any:
        """What it reads texts with."""
        return self.pipeline.tokenizer

    @property
    def cache_key(self) -> list:
        """What cached results depend on: weights, settings, and how texts are read (`modules.describe_reader`)."""
        settings = self.model.config.to_json_string()
        return [self._checksum(self.model), settings, *describe_reader(self.model, self.tokenizer)]

    @property
    def computation(self) -> dict[str, str]:
        """What computes besides the weights (`checksums.describe_computation`)."""
        return describe_computation(self.model)

    def __call__(self, texts: Iterable[str], reader: str, beside: Sequence[str] = ("",), **options: Any) -> list:
        """What the pipeline answers to each text, computed in float32 also within torch.autocast; nothing for no text.

        Parameters
        ----------
        texts : iterable of str
        reader : str
            What errors call the classifier.
        beside : sequence of str
            What is read together with a text.
        **options
            Of the call of the pipeline.

        Raises
        ------
        ValueError
            For what are no texts, for one of which the classifier would read the beginning alone, and for a network in
            training mode or with weights made half precision since loading.
        """
        refuse_one_text(texts)
        refuse_one_text(texts := list(texts))  # a generator is read once
        most = min(self.tokenizer.model_max_length, n_positions(self.model))
        refuse_cut_texts(texts, self.tokenizer, most, reader, beside=beside)
        check_evaluating(self.model, str(self.name))
        check_weights(self.model, f"{reader} {str(self.name)!r}")
        with torch.autocast(self.model.device.type, enabled=False):
            return self.pipeline(texts, batch_size=32, **options) if texts else []
