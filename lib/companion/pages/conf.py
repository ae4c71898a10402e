"""Set Sphinx up for the pages. Equations become MathML, which browsers draw themselves: no script, no network."""

from docutils import nodes
from latex2mathml.converter import convert

project = "Sparsity, Reproduced"
extensions = ["myst_nb"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = project
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks = False
html_math_renderer = "mathml"
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
templates_path: list[str] = []
exclude_patterns = ["build"]
suppress_warnings = ["mystnb.unknown_mime_type"]


def inline(translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="equation">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app) -> None:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
