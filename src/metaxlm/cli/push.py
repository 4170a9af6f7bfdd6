"""`metaxlm push`: upload a model folder to the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from metaxlm.cli.options import LanguageList, Quiet, split_list
from metaxlm.progress import console, say, set_quiet

EXAMPLES = """
\b
Log in first: hf auth login, or set HF_TOKEN. The folder does not change.
\b
Examples:
  metaxlm push runs/demo/variants/metaxlm me/demo --dry
  metaxlm push my-encoder me/my-encoder --license mit --scores scores --private
"""


def push_command(
    folder: Annotated[str, Argument(help="A model folder, or a variant of a run.")],
    repository: Annotated[
        str, Argument(metavar="REPO", help="USER/MODEL on the hub; made if it does not exist.")
    ],
    license_name: Annotated[
        str | None, Option("--license", help="License of the model, such as apache-2.0.")
    ] = None,
    languages: LanguageList = None,
    scores: Annotated[
        list[Path] | None,
        Option(help="Output of evaluate-sentences or evaluate, for the card (repeatable)."),
    ] = None,
    private: Annotated[bool, Option("--private", help="Make the repository private.")] = False,
    dry: Annotated[bool, Option("--dry", help="Show files and card; upload nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Upload a model with its card, license, languages and scores to the Hugging Face hub."""
    set_quiet(quiet)
    from metaxlm.run.hub_upload import prepare_upload

    ready = prepare_upload(
        folder, repository, license_name=license_name, languages=split_list(languages),
        scores=scores or (),
    )  # fmt: skip
    sizes = {"README.md": len(ready.card.encode())}
    sizes |= {name: path.stat().st_size for name, path in ready.files.items()}
    total = f"{len(sizes)} files, {sum(sizes.values()) / 1e6:,.1f} MB"
    if "\nlicense:" not in ready.front_matter:
        say("note: the card has no license, so others may not use the model; --license adds one")
    if dry:
        for name, size in sizes.items():
            console.print(f"{size:>15,}  {name}", markup=False, highlight=False, soft_wrap=True)
        console.print(ready.front_matter, markup=False, highlight=False, soft_wrap=True)
        say(f"{ready.repository}: {total}; --dry uploads nothing")
        return
    say(f"{ready.repository}: uploading {total}")
    say(f"uploaded: {ready.send(private=private)}")
