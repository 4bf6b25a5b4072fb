// Comfort only: everything can be read without. Sorts tables, filters rows, enlarges pictures.
'use strict';
for (const table of document.querySelectorAll('table.sortable')) {
  table.querySelectorAll('thead th').forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      table.querySelectorAll('thead th').forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const body = table.tBodies[0], of = row => row.cells[column];
      const order = (a, b) => 'value' in of(a).dataset ? of(a).dataset.value - of(b).dataset.value
        : of(a).textContent.localeCompare(of(b).textContent, undefined, {numeric: true});
      [...body.rows].sort((a, b) => (up ? 1 : -1) * order(a, b)).forEach(row => body.append(row));
    };
    head.addEventListener('click', sort);
    head.addEventListener('keydown', event => { if (event.key === 'Enter') sort(); });
  });
}
for (const box of document.querySelectorAll('[data-filter]')) {
  const items = [...box.querySelectorAll(':scope > details, :scope > table > tbody > tr')];
  if (items.length < 7) continue;
  const field = document.createElement('input');
  field.type = 'search';
  field.className = 'filter';
  field.placeholder = `Filter ${box.dataset.filter}`;
  field.setAttribute('aria-label', field.placeholder);
  field.addEventListener('input', () => {
    const wanted = field.value.toLowerCase();
    for (const item of items) item.hidden = !(item.querySelector('summary, th') ?? item).textContent.toLowerCase().includes(wanted);
  });
  box.prepend(field);
}
const dialog = document.createElement('dialog');
dialog.className = 'zoom';
dialog.append(document.createElement('img'), document.createElement('p'));
dialog.addEventListener('click', () => dialog.close());
document.body.append(dialog);
for (const picture of document.querySelectorAll('main img')) {
  picture.tabIndex = 0;
  const zoom = () => {
    dialog.firstChild.src = picture.src;
    dialog.firstChild.alt = picture.alt;
    dialog.lastChild.textContent = picture.closest('figure')?.textContent.trim() || picture.alt;
    dialog.showModal();
  };
  picture.addEventListener('click', zoom);
  picture.addEventListener('keydown', event => { if (event.key === 'Enter') zoom(); });
}
