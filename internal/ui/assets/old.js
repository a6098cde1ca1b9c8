// What stands beside the live part of a page is of the moment in which the page was loaded. The page says so once the
// live part is of another one.
const part = document.querySelector('#live');
const old = document.querySelector('#old');
if (part && old) new MutationObserver(() => {
  const present = part.querySelector('#present');
  if (present) old.hidden = present.value === old.dataset.stamp;
}).observe(part, { childList: true, subtree: true, attributes: true });
