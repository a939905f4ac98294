// The table of claims on the first page: sorted by a click on a heading, filtered by section, verdict and words.
document.addEventListener("DOMContentLoaded", () => {
  const table = document.getElementById("claims-table");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const [section, verdict, words] = ["section", "verdict", "words"].map((name) => document.getElementById(`claims-${name}`));
  const count = document.getElementById("claims-count");
  const filter = () => {
    const wanted = words.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits =
        (!section.value || row.dataset.section === section.value) &&
        (!verdict.value || row.dataset.verdict === verdict.value) &&
        row.textContent.toLowerCase().includes(wanted);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} claims`;
  };
  for (const control of [section, verdict, words]) control.addEventListener("input", filter);
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = heading.querySelector("button");
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const number = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : null);
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // what is lacking stands last, whichever way
        const [m, n] = [number(x), number(y)];
        const by = m !== null && n !== null ? m - n : x.localeCompare(y);
        return up ? by : -by;
      };
      table.tBodies[0].append(...rows.sort(order));
    });
  });
  filter();
});
