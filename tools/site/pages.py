"""MkDocs hooks: READMEs become pages, and other links out of docs/ point to the repository."""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "examples/README.md": "examples.md"}  # of the repository, and of the site
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^):#\s]+)((?:#[^)\s]*)?)\)")


def on_files(files, config):
    """Adds the READMEs as pages, with links relative to docs/."""
    for source, page in PAGES.items():
        folder = pathlib.PurePosixPath(source).parent

        def replace(match, folder=folder):
            path = pathlib.PurePosixPath(*resolved((folder / match[3]).parts))
            return f"{match[1]}[{match[2]}]({relative_to_docs(str(path))}{match[4]})"

        files.append(File.generated(config, page, content=LINK.sub(replace, (ROOT / source).read_text())))
    return files


def relative_to_docs(target):
    return target.removeprefix("docs/") if target.startswith("docs/") else "../" + target


def on_page_markdown(markdown, page, config, files):
    """Turns links to files outside docs/ into links to the repository, or into names when repo_url is not set."""
    folder = pathlib.PurePosixPath("docs") / pathlib.PurePosixPath(page.file.src_uri).parent

    def replace(match):
        bang, text, target, anchor = match.groups()
        path = pathlib.PurePosixPath(*resolved((folder / target).parts))
        if path.parts[0] == "docs" or bang:
            return match[0]
        if str(path) in PAGES:
            return f"[{text}]({'../' * (len(folder.parts) - 1)}{PAGES[str(path)]}{anchor})"
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
