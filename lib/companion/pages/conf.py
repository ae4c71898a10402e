"""Set Sphinx up for the pages. Equations become MathML, which browsers draw themselves: no script, no network."""

from docutils import nodes
from latex2mathml.converter import convert

from lib.companion.pages.parts import same_part

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
html_use_index = False
html_show_search_summary = False  # a page that is opened as a file may not read another
html_theme_options = {"top_of_page_buttons": []}
html_math_renderer = "mathml"
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # equations in what a cell says, too
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath"]
templates_path: list[str] = []
exclude_patterns = ["build"]
suppress_warnings = ["mystnb.unknown_mime_type"]


def inline(translator, node: nodes.math) -> None:
    """Write an equation within a line as MathML."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(translator, node: nodes.math_block) -> None:
    """Write an equation that stands alone as MathML."""
    translator.body.append(f'<div class="equation">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def neighbours(app, page: str, template: str, context: dict, doctree) -> None:
    """Lead to the previous and the next notebook of the same part only; the home page is before each first."""
    for side in ("prev", "next"):
        if context.get(side) and not same_part(page, context[side]["link"]):
            home = {"link": context["pathto"](context["root_doc"]), "title": "All notebooks"}
            context[side] = home if page[:2].isdigit() else None


def setup(app) -> None:
    """Tell Sphinx of the functions above; it calls this by its name."""
    app.connect("html-page-context", neighbours)
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
