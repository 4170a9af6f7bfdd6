"""How long the page of `metaxlm view` takes to answer a click, in Chromium.

    python benchmarks/view.py                              # docs/results/twin
    python benchmarks/view.py runs/demo --width 390

Every view is opened, and every option of each of its choices is chosen (at most ten per choice,
evenly spread), as well as every head of a table and every variant. The time is from the event until
the frame after the page is drawn again, in the page's own clock. An answer of the server is part of
it; the first sentence of a model and language is computed then. Needs `playwright` and Chromium:
`pip install playwright`, and Debian's `chromium` or `playwright install chromium`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import threading
from pathlib import Path
from typing import Any

from metaxlm.cli.view import HOST, open_server
from metaxlm.run.explorer import Explorer

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_MEASURE = """
async (most) => {
  const times = [];
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const main = document.getElementById("main");
  const drawn = async () => { do await frame(); while (main.ariaBusy === "true"); await frame(); };
  const time = async (name, act) => {
    const start = performance.now();
    act();
    do await frame(); while (main.ariaBusy === "true");
    times.push([name, performance.now() - start]);
    await drawn();
  };
  for (const tab of document.querySelectorAll("#views button")) {
    await time(`${tab.dataset.view}: open`, () => tab.click());
    for (const select of document.querySelectorAll("#controls select")) {
      if (select.closest("[hidden]")) continue;
      const places = [...select.options].map((_, place) => place);
      const step = Math.max(1, Math.ceil(places.length / most));
      for (const place of [...places.filter((k) => k % step === 0), 0]) {
        await time(`${tab.dataset.view}: ${select.id}`, () => {
          select.selectedIndex = place;
          select.dispatchEvent(new Event("change", { bubbles: true }));
        });
      }
    }
    for (const box of [...document.querySelectorAll("#variants input")]) {
      if (box.closest("[hidden]")) continue;
      for (const _ of [0, 1]) await time(`${tab.dataset.view}: variants`, () => box.click());
    }
    const heads = document.querySelectorAll("th button").length;
    for (let k = 0; k < heads; k += 1) {
      await time(`${tab.dataset.view}: sort`, () => {
        document.querySelectorAll("th button")[k].click();
      });
    }
  }
  return times;
}
"""


def find_chromium() -> str | None:
    """Return the system's Chromium; None leaves the choice to playwright."""
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


def measure(run_dir: Path, width: int, most: int = 10) -> list[tuple[str, float]]:
    """Return names and milliseconds of all clicks."""
    from playwright.sync_api import sync_playwright

    with open_server(Explorer(run_dir)) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options: dict[str, Any] = {"executable_path": find_chromium(), "args": ["--no-sandbox"]}
        browser = playwright.chromium.launch(**options)
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.goto(f"http://{HOST}:{server.server_port}/")
        page.wait_for_selector("#views button")
        times = page.evaluate(_MEASURE, most)
        browser.close()
        server.shutdown()
    return [(str(name), float(value)) for name, value in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("run", nargs="?", type=Path, default=Path("docs/results/twin"))
    parser.add_argument("--width", type=int, default=1280, help="of the window, in pixels")
    chosen = parser.parse_args()
    times = measure(chosen.run, chosen.width)
    by_name: dict[str, list[float]] = {}
    for name, value in times:
        by_name.setdefault(name, []).append(value)
    for name, values in by_name.items():
        print(f"{name:24} {len(values):3} clicks  median {statistics.median(values):5.1f} ms  "
              f"maximum {max(values):5.1f} ms")  # fmt: skip
    every = [value for _, value in times]
    print(f"{chosen.run}, {chosen.width} px: {len(every)} clicks, median "
          f"{statistics.median(every):.1f} ms, maximum {max(every):.1f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
