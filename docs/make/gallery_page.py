"""The gallery: every example with its picture, what it shows, and the script."""

from __future__ import annotations

from examples import gallery


def page() -> str:
    """The page, as Markdown.

    >>> page().count("<figure") == len(gallery.names())
    True
    """
    figures = "\n".join(
        f'<figure markdown="span">[![{gallery.about(name)}](gallery/{name}.png)](#{_anchor(name)})'
        f"<figcaption>{gallery.about(name)}</figcaption></figure>"
        for name in gallery.names()
    )
    scripts = "\n".join(_entry(name) for name in gallery.names())
    return (
        "# Gallery\n\nShort scripts, each with the picture it draws. `python -m examples NAME` draws one again, "
        f'`python -m examples` all.\n\n<div class="gallery" markdown>\n{figures}\n</div>\n\n{scripts}\n\n{SHARED}'
    )


SHARED = f"""## What they start from

```py
{gallery.source("shared").strip()}
```
"""


def _anchor(name: str) -> str:
    return name.replace("_", "-")


def _entry(name: str) -> str:
    title = name.replace("_", " ").capitalize()
    return (
        f"## {title} {{ #{_anchor(name)} }}\n\n{gallery.about(name)}\n\n![{title}](gallery/{name}.png)\n\n"
        f'??? example "examples/{name}.py"\n\n'
        + "\n".join(f"    {line}".rstrip() for line in f"```py\n{gallery.source(name).strip()}\n```".splitlines())
        + "\n"
    )
