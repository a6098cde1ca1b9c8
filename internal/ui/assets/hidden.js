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
