"use strict";

// Everything below is optional: without JavaScript, the page shows the same numbers.

for (const table of document.querySelectorAll("table.configurations")) {
  const headings = [...table.tHead.rows[0].cells];
  const originalOrder = [...table.tBodies];
  for (const heading of headings) {
    const button = heading.querySelector("button");
    if (!button) continue;
    button.disabled = false;
    button.addEventListener("click", () => {
      const other = { ascending: "descending", descending: "ascending" };
      const direction = other[heading.ariaSort] ?? button.dataset.first;
      for (const each of headings) if (each.ariaSort) each.ariaSort = "none";
      heading.ariaSort = direction;
      const groups = originalOrder.map((group) => ({ group, key: group.rows[0].cells[heading.cellIndex].dataset.order }));
      groups.sort((one, two) => compare(one.key, two.key, direction));
      table.append(...groups.map(({ group }) => group));
    });
  }
}

// Compares numbers by value and texts alphabetically; missing values come last in both directions.
function compare(one, two, direction) {
  if (one === undefined || two === undefined) return (one === undefined) - (two === undefined);
  const numbers = [Number(one), Number(two)];
  const difference = numbers.some(Number.isNaN) ? one.localeCompare(two, "en", { numeric: true }) : numbers[0] - numbers[1];
  return direction === "ascending" ? difference : -difference;
}

for (const choice of document.querySelectorAll("select.kinds-of")) {
  const part = choice.closest("section");
  const figures = JSON.parse(part.querySelector(".kinds-data").textContent);
  const rows = [...part.querySelector("table.kinds").tBodies[0].rows];
  choice.disabled = false;
  choice.addEventListener("change", () => {
    rows.forEach((row, index) => {
      const numbers = figures[choice.value][index] ?? Array(7).fill(null);
      row.cells[2].textContent = numbers[0] ?? "–";
      for (const [cell, at] of [[3, 1], [5, 4]]) {
        const [mean, low, high] = numbers.slice(at, at + 3);
        const present = mean !== null;
        row.cells[cell].querySelector(".figure").textContent = present ? mean.toFixed(1) : "–";
        row.cells[cell].querySelector(".interval").textContent = present ? `${low.toFixed(1)}–${high.toFixed(1)}` : "";
        const bar = row.cells[cell + 1].querySelector(".bar");
        bar.hidden = !present;
        for (const [name, value] of Object.entries({ low, mean, high })) bar.style.setProperty(`--${name}`, value);
      }
    });
  });
}

const tip = document.querySelector(".tip");
for (const mark of document.querySelectorAll(".mark")) {
  const title = mark.querySelector("title");
  if (!title) continue;
  const text = title.textContent;
  title.remove(); // otherwise the browser shows its own tooltip as well
  const show = () => {
    tip.textContent = text;
    tip.hidden = false;
    const at = mark.querySelector("use").getBoundingClientRect();
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.x + at.width / 2 - width / 2), document.documentElement.clientWidth - width - 8);
    tip.style.left = `${left}px`;
    tip.style.top = `${at.y > height + 12 ? at.y - height - 8 : at.bottom + 8}px`;
  };
  const hide = () => { tip.hidden = true; };
  mark.addEventListener("pointerenter", show);
  mark.addEventListener("pointerleave", hide);
  mark.addEventListener("focus", show);
  mark.addEventListener("blur", hide);
}

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
