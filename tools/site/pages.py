"""Hooks of MkDocs: the README becomes the home page, and links that leave docs/ lead to the repository."""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^):#\s]+)((?:#[^)\s]*)?)\)")


def on_files(files, config):
    """Adds the README as index.md, with links relative to docs/."""
    readme = (ROOT / "README.md").read_text()
    readme = LINK.sub(lambda m: f"{m[1]}[{m[2]}]({relative_to_docs(m[3])}{m[4]})", readme)
    files.append(File.generated(config, "index.md", content=readme))
    return files


def relative_to_docs(target):
    return target.removeprefix("docs/") if target.startswith("docs/") else "../" + target


def on_page_markdown(markdown, page, config, files):
    """Turns links to files outside docs/ into links to the repository, or into names where no repo_url is set."""
    folder = pathlib.PurePosixPath("docs") / pathlib.PurePosixPath(page.file.src_uri).parent

    def replace(match):
        bang, text, target, anchor = match.groups()
        path = pathlib.PurePosixPath(*resolved((folder / target).parts))
        if path.parts[0] == "docs" or bang:
            return match[0]
        if str(path) == "README.md":
            return f"[{text}]({'../' * (len(folder.parts) - 1)}index.md{anchor})"
        if not config.repo_url:
            return text if text.startswith("`") or str(path) in text else f"{text} (`{path}`)"
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path}{anchor})"

    return LINK.sub(replace, markdown)


def resolved(parts):
    """The parts of a path without '..'."""
    result = []
    for part in parts:
        if part == ".." and result:
            result.pop()
        elif part != "..":
            result.append(part)
    return result
