"""Settings of the site (`make site`); scripts/build_site.py writes the pages beside a copy of this folder."""

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml

project = "Masked language models as Markov chains"
copyright, author = "", ""
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title, html_static_path = "furo", project, ["_static"]
html_css_files, html_js_files = ["site.css"], ["claims.js"]
html_use_index = html_domain_indices = html_copy_source = html_show_sphinx = html_show_copyright = False
html_math_renderer = "mathml"
pygments_style, pygments_dark_style = "friendly", "github-dark"

nb_execution_mode = "off"  # make paper has run them
nb_merge_streams = True
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

autodoc_member_order, autodoc_typehints = "bysource", "none"
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_google_docstring = napoleon_use_param = napoleon_use_rtype = False  # a line may name several: `i, j : ...`
napoleon_custom_sections = [("Attributes", "params_style")]
# In notebooks relative links lead into the repository. A docstring's `name` is code, not a reference to look up.
default_role = "code"
suppress_warnings = ["myst.xref_missing", "mystnb.unknown_mime_type"]


def mathml(tex, display):
    """A formula as MathML, which every browser of today shows by itself; as TeX where docutils cannot read it."""
    try:
        return tex2mathml(tex, as_block=display)
    except (MathError, ValueError, KeyError, IndexError, AttributeError, TypeError):
        return f"<code>{nodes.Text(tex).astext().replace('&', '&amp;').replace('<', '&lt;')}</code>"


def _inline(self, node):
    self.body.append(mathml(node.astext(), False))
    raise nodes.SkipNode


def _block(self, node):
    self.body.append(f'<div class="math">{mathml(node.astext(), True)}</div>')
    raise nodes.SkipNode


def _listed_already(app, what, name, obj, skip, options):
    """Leave out what a class only holds: its docstring lists it among the attributes."""
    return True if what == "class" and not (callable(obj) or isinstance(obj, property | classmethod)) else None


def setup(app):
    """Sphinx calls this: formulas need no script and no network."""
    app.connect("autodoc-skip-member", _listed_already)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
