"use strict";
const root = document.documentElement;
const kept = {
  get(key) { try { return localStorage.getItem("ablate-" + key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem("ablate-" + key, value); } catch { /* a page from disk may keep nothing */ } },
};

// light or dark: the reader's last choice, else the machine's
function theme(name) { root.dataset.theme = name; kept.set("theme", name); }
theme(kept.get("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").onclick = () => theme(root.dataset.theme === "dark" ? "light" : "dark");

// the claims' language
function language(name) { root.dataset.language = name; kept.set("language", name); }
language(kept.get("language") || "en");
document.getElementById("language").onclick = () => language(root.dataset.language === "zh" ? "en" : "zh");

// sorting: by number where a cell begins with one
function value(row, column) {
  const text = row.cells[column].innerText.trim();
  if (/^\d+(:\d\d)+$/.test(text)) return text.split(":").reduce((sum, part) => 60 * sum + Number(part), 0);
  const number = parseFloat(text.replace(/,/g, "").replace(/^[<[]/, ""));
  return Number.isNaN(number) ? text : number;
}
for (const table of document.querySelectorAll("table.sortable")) {
  table.tHead.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
      rows.sort(([a], [b]) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1) * (up ? 1 : -1));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    };
  });
}

// filtering the claims
const find = document.getElementById("find");
const kinds = [...document.querySelectorAll("input.kind")];
function filter() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = new Set(kinds.filter((box) => box.checked).map((box) => box.value));
  const rows = [...document.querySelectorAll("#claims tbody tr")];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !wanted.has(row.dataset.kind) || !words.every((word) => text.includes(word));
  }
  const left = rows.filter((row) => !row.hidden).length;
  document.getElementById("shown").textContent = left === rows.length ? "" : `${left} of ${rows.length} shown.`;
}
find.oninput = filter;
for (const box of kinds) box.onchange = filter;

// commands to copy; a page from disk may have no clipboard
for (const button of document.querySelectorAll("button.copy")) {
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {
      prompt("the command", button.dataset.copy);
    }
    setTimeout(() => (button.textContent = "copy"), 1500);
  };
}

// printing shows what is folded away
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
