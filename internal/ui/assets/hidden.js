// A tab that is opened in the background asks for no updates until it is looked at: hx-sse pauses a stream when its tab
// is hidden, and begins one also where the tab is hidden from its start.
const live = document.hidden && document.querySelector('#live');
if (live) {
  const at = live.getAttribute('hx-sse:connect');
  live.removeAttribute('hx-sse:connect');
  const begin = () => {
    if (document.hidden) return;
    document.removeEventListener('visibilitychange', begin);
    live.setAttribute('hx-sse:connect', at);
    htmx.process(live);
  };
  document.addEventListener('visibilitychange', begin);
}

// A stream that begins while its tab is hidden is ended, too: hx-sse looks at the tab when that is hidden, and not when
// it has connected again, so that a tab that is hidden while it waits to connect would be kept up to date. It is told of
// the hidden tab once more, when it reads the stream.
document.addEventListener('htmx:sse:after:connection', () => setTimeout(() => {
  if (document.hidden) document.dispatchEvent(new Event('visibilitychange'));
}));
