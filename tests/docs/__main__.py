"""`make pages`: writes the made parts of all pages anew."""

from __future__ import annotations

from tests.docs.made import make
from tests.docs.pages import name_of, pages, remade


def main() -> None:
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = remade(before, make)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{name_of(page)}: written anew")


if __name__ == "__main__":
    main()
