// A page that is looked at says when it is not followed: nothing has come over its stream for a minute. hx-sse connects
// again once it was connected. Where the first request was refused, as by a process that was about to end, it is made
// again here.
const followed = document.querySelector('#live');
const lost = document.querySelector('#lost');
let open = false, asked = Date.now(), heard = Date.now();
document.addEventListener('htmx:sse:after:connection', () => { open = true; });
document.addEventListener('htmx:sse:close', () => { open = false; asked = Date.now(); });
document.addEventListener('htmx:sse:after:message', () => { heard = Date.now(); });
document.addEventListener('visibilitychange', () => { asked = heard = Date.now(); });
setInterval(() => {
  const at = followed.getAttribute('hx-sse:connect'), now = Date.now();
  lost.hidden = document.hidden || now - heard < 60000;
  if (open || document.hidden || !at || now - asked < 15000) return;
  asked = now;
  htmx.ajax('GET', at, { source: followed });
}, 1000);
