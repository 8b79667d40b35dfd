"""Make what a package index shows of the project: README with absolute links, and the urls."""

import re

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|`[^`]*`)*)\]\((?P<target>[^()\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def index_text(text: str, repository: str, version: str, namespace: str = "") -> str:
    """Return README as an index shows it: what it names by a path of the repository becomes an
    address of this release.

    Without a repository a link becomes its text, and a picture goes. In blocks of code nothing
    changes. namespace: adds the line by which the MCP registry sees that the package is ours.
    """

    def absolute(link: re.Match[str]) -> str:
        image, words, target = link["image"], link["text"], link["target"]
        if re.match(r"[a-z][a-z0-9+.-]*:|#", target):
            return link[0]
        if not repository:
            return "" if image else words
        return f"{image}[{words}]({repository}/{'raw' if image else 'blob'}/v{version}/{target})"

    parts, at = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(absolute, text[at : fence.start()]), fence[0]]
        at = fence.end()
    parts.append(_LINK.sub(absolute, text[at:]))
    whole = re.sub(r"\n{3,}", "\n\n", "".join(parts))
    return f"{whole.rstrip()}\n\n<!-- mcp-name: {namespace}/evolvable -->\n" if namespace else whole


def project_urls(repository: str, docs: str, version: str) -> dict[str, str]:
    """Return [project.urls]; only addresses that somebody holds."""
    urls = {"Documentation": docs} if docs else {}
    if repository:
        urls |= {
            "Source": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
            "Security": f"{repository}/security",
        }
    return urls
