// Drives the dashboard of a real `postern dev` in the Chromium of the system, as its users do.
//
//   npm ci && POSTERN=../../bin/postern node test.mjs          (skips with one line where there is no Chromium)
//   UPDATE=1 node test.mjs                                     (writes golden/ and the pictures of docs/dashboard)
//   SCREENS=queue,job node test.mjs                            (these screens alone)
//   SHOTS=1 node test.mjs                                      (writes a picture of each screen, as it is looked at, to shots/)
//
// It checks each screen, light and dark, 1280 and 375 wide: its text against golden/, axe, reports of the policy and errors
// of the console; all by keyboard; every page and lever without script; and three stories.
import { chromium } from 'playwright-core';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';

const here = import.meta.dirname;
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browserPath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
  .find(p => p && fs.existsSync(p));
if (!browserPath) {
  console.log('skipped: no Chromium is installed (apt-get install chromium, or CHROMIUM=path)');
  process.exit(0);
}
const update = process.env.UPDATE === '1';
const shots = process.env.SHOTS === '1' && path.join(here, 'shots');
if (shots) fs.mkdirSync(shots, { recursive: true });
const pictures = path.join(here, '../../docs/dashboard');
let failed = 0;
const patience = 180000; // ms that a condition is waited for: a machine may do much else meanwhile
const check = (ok, what, more = '') => {
  if (!ok) { failed++; console.log('FAIL', what, String(more).slice(0, 1500)); }
};

const state = fs.mkdtempSync(path.join(os.tmpdir(), 'postern-ui-'));
fs.chmodSync(state, 0o755); // for the user who runs a server for root
// The port is none that a system gives by itself: another process would get it while this one has not started, or is away.
const port = await new Promise(done => {
  const draw = () => {
    const p = 12000 + Math.floor(Math.random() * 18000);
    const s = net.createServer().once('error', draw).listen(p, '127.0.0.1', () => s.close(() => done(p)));
  };
  draw();
});
const base = `http://127.0.0.1:${port}`;
let server;

process.on('exit', () => server?.kill()); // also where something is thrown

// start runs the whole installation, on the database of the last one.
async function start() {
  server = spawn(process.env.POSTERN ?? path.join(here, '../../bin/postern'),
    ['dev', '--listen', `127.0.0.1:${port}`, '--metrics-listen', 'off', '--node-name', 'node-1'],
    { env: { ...process.env, XDG_STATE_HOME: state }, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  server.stderr.on('data', d => { said += d; });
  for (let i = 0; i < 900; i++) {
    if (server.exitCode !== null) throw new Error('postern dev ended: ' + said);
    if (said.includes('dashboard ' + base) && await fetch(base + '/readyz').then(r => r.ok, () => false)) return said;
    await new Promise(r => setTimeout(r, 200));
  }
  throw new Error('postern dev does not answer: ' + said);
}
const stop = () => new Promise(done => { server.once('exit', done); server.kill('SIGTERM'); });

async function api(method, at, body, headers = {}) {
  if (body) headers['Content-Type'] = 'application/json';
  const r = await fetch(base + at, { method, headers, body: body && JSON.stringify(body) });
  const text = await r.text();
  if (!r.ok) throw new Error(`${method} ${at}: ${r.status} ${text}`);
  return text ? JSON.parse(text) : {};
}

const markup = '<script>alert(1)</script><img src=x onerror=alert(2)>';

// jobs has a runner hold the first job of a flow, and say something of it.
async function jobs(ids) {
  await api('PUT', '/runners/box', { script_types: ['python'], ttl: '1h' });
  const { epoch } = await api('POST', '/runners/box/register', { instance: 'one', script_types: ['python'], slots: 4, isolation: 'strict', version: 'v1' });
  const script = 'print("hello")\n# ' + markup;
  const flow = await api('POST', '/flows', { start: true, jobs: [1, 2, 3].map(ref => ({ ref, script_type: 'python', script, timeout: 86400, dependends: [[], [1], [1]][ref - 1] })) });
  ids.flow = flow.id;
  for (let i = 0; i < 30 && !ids.job; i++) {
    const answer = await api('POST', '/runners/box/claim?wait=10s', { epoch, max: 1, holds: [] });
    const held = answer.jobs?.[0];
    if (!held) continue;
    ids.job = held.job;
    ids.say = (n, text) => api('POST', `/tries/${held.try}/log`, { lines: [{ n, stream: n > 1 ? 'stderr' : 'stdout', text }] }, { 'Postern-Fence': String(held.fence) });
    await ids.say(1, 'hello ' + markup);
  }
}

// refuser is a worker, a tool and a receiver of callbacks that refuses all, with texts that want to be more than text.
const refuser = http.createServer((request, answer) => {
  request.resume();
  answer.setHeader('Content-Type', 'application/json');
  answer.statusCode = request.url === '/hook' ? 410 : 200;
  answer.end(JSON.stringify({ error: { class: 'rejected', code: 'no', message: 'the bank says no ' + markup } }));
});
await new Promise(done => refuser.listen(0, '127.0.0.1', done));
refuser.unref();
const refusal = `http://127.0.0.1:${refuser.address().port}/`;

// failures puts there what ended badly, and how it was told: a transaction, a callback, an event, a message and a batch.
async function failures(ids) {
  await api('PUT', '/subscriptions/told', { kind: 'webhook', url: refusal + 'hook', events: ['transaction.failed'] });
  await api('PUT', '/dispatchers/BAD', { worker_url: refusal });
  ids.bad = (await api('POST', '/transactions?wait=20s', { queue: 'refused', type: 'BAD', uid: 'bad-1', data: {} })).id;
  await api('PUT', '/sources/app', { kind: 'push', map: { fqn: '/tool' } });
  const input = { type: 'object', properties: { a: { type: 'integer' } } }, output = { oneOf: [{ type: 'object', properties: { ok: { type: 'object' } } }] };
  await api('PUT', '/tools/xyz.labs.add@1', { url: refusal, description: 'adds ' + markup, input_schema: input, output_schema: output });
  ids.event = (await api('POST', '/events', { source: 'app', identity: { digest: markup }, json: { tool: 'xyz.labs.none@1', note: markup } })).items[0].id;
  await calm('the call of the event', async () => // so that it stands before the batch
    (await api('GET', '/transactions')).items.some(t => t.uid?.startsWith('event:')));
  await api('PUT', '/channels/between', { kind: 'integrity', capacity: 4 });
  await api('POST', '/channels/between/messages', { id: 'a', payload: { note: markup } });
  const add = { domain: 'proc', contract_address: 'BAD', message_details: { message: { name: 'add' } } };
  ids.batch = (await api('POST', '/processors/proc/batches', { actions_config: { non_atomic: { functions: [add] } }, msgs: [{ msg: { add: { n: 1 } } }] })).id;
}

// scenario puts something of most nouns there, with texts of users that want to be more than text.
async function scenario() {
  await api('PUT', '/dispatchers/HELLO', { worker_url: 'noop:' });
  await api('PUT', '/dispatchers/PAY', { worker_url: 'http://127.0.0.1:1/', pool: 'signers' });
  await api('PUT', '/senders/acc-1', { pool: 'signers', attributes: { note: markup } });
  await api('PUT', '/queues/payouts', { priority: 'High' });
  await api('POST', '/queues/payouts/pause', { reason: 'the bank is closed ' + markup });
  const ids = {};
  for (const uid of ['payout-1', 'payout-2', 'payout-3']) {
    ids[uid] = (await api('POST', '/transactions', { queue: 'payouts', type: 'PAY', uid, data: { to: 'ann', note: markup, turn: '\u202egnp.exe', long: 'x'.repeat(uid === 'payout-3' ? 65536 : 1) } })).id;
  }
  ids.done = (await api('POST', '/transactions?wait=20s', { queue: 'greetings', type: 'HELLO', uid: 'hello-1', data: { to: 'world' } })).id; // and below until it is DONE
  ids.waits = (await api('POST', '/transactions', { queue: 'after', type: 'HELLO', uid: 'after-1', data: {}, depends_on: ['payout-1', 'hello-1'] })).id;
  await jobs(ids);
  await api('PUT', '/processors/proc', {});
  await api('PUT', '/subscriptions/hook', { kind: 'pull', events: ['transaction.done'] });
  ids.message = (await api('POST', '/messages', { to: { context: 'default', topic: 'letters' }, message_type: 'chat', message: 'hello ' + markup })).id;
  await api('PUT', '/peers/bank', { secret: 'whsec_' + Buffer.from('0123456789abcdef0123456789abcdef').toString('base64') });
  await api('PUT', '/domains/notes', { types: ['HELLO'], service_url: 'http://127.0.0.1:1' });
  await api('POST', '/domains/notes/pause', { reason: 'the notary is away ' + markup });
  await failures(ids);
  ids.intent = (await api('POST', '/domains/notes/intents', { party: 'ann', uid: 'mint-1', data: { note: markup } })).id;
  await calm('the transaction that is done', async () => (await api('GET', '/transactions/' + ids.done)).state === 'DONE');
  await calm('callbacks that were refused', async () => {
    const told = (await api('GET', '/deliveries')).items;
    return told.length === 3 && told.some(d => d.tries > 0); // it answers 410, so that the others wait
  });
  await calm('the message', async () => (await api('GET', '/messages/' + ids.message)).delivered_at);
  await calm('the counts of the first page', async () => {
    const now = await api('GET', '/now');
    return now.waiting === 6 && now.in_flight.REVISION === 1 && now.queues.FREE === 4 && now.hours.length > 0;
  });
  return ids;
}

// calm waits until something has come to what the pages are compared with.
async function calm(what, is) {
  for (const end = Date.now() + patience; !await is(); await new Promise(r => setTimeout(r, 100))) {
    if (Date.now() > end) throw new Error('it does not come to ' + what);
  }
}

console.log((await start()).split('\n').filter(l => l.startsWith('dashboard')).join());
const ids = await scenario();
const c = '/ui/c/default/';
const screens = {
  now: 'now', transactions: 'transactions', transaction: 'transactions/' + ids['payout-2'], depends: 'transactions/' + ids.waits,
  done: 'transactions/' + ids.done, queues: 'queues', queue: 'queues/payouts', senders: 'senders', sender: 'senders/acc-1',
  pools: 'pools', pool: 'pools/signers', dispatchers: 'dispatchers', dispatcher: 'dispatchers/PAY', processors: 'processors',
  processor: 'processors/proc', failed: 'transactions/' + ids.bad, batches: 'processors/proc/batches', authorizations: 'authorizations', sources: 'sources',
  event: 'events/' + ids.event, events: 'events', dead: 'events?status=Dead', tools: 'tools', tool: 'tools/xyz.labs.add@1', channels: 'channels',
  source: 'sources/app', channel: 'channels/between', batch: 'processors/proc/batches/' + ids.batch, subscriptions: 'subscriptions', subscription: 'subscriptions/hook',
  deliveries: 'deliveries', nodes: 'nodes', node: 'nodes/node-1', audit: 'audit', contexts: 'contexts', context: 'contexts/default',
  machines: 'machines', machine: 'machines/transaction', missing: 'queues/none', stands: 'queues?stuck_for=24h&prefix=pay',
  flows: 'flows', flow: 'flows/' + ids.flow, jobs: 'jobs', job: 'jobs/' + ids.job, runners: 'runners', runner: 'runners/box',
  'machine-job': 'machines/job', output: 'jobs/' + ids.job + '/logs', messages: 'messages', message: 'messages/' + ids.message,
  peers: 'peers', peer: 'peers/bank', domains: 'domains', domain: 'domains/notes', intents: 'domains/notes/intents',
  intent: 'domains/notes/intents/' + ids.intent,
};

const only = process.env.SCREENS?.split(',');
const looked = Object.entries(screens).filter(([name]) => !only || only.includes(name));

const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] }); // root has no sandbox

// look opens a page in which every report of the policy and every error of the console is a failure, or is given to bad.
async function look(options = {}, bad = (what, more) => check(false, what, more)) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, timezoneId: 'UTC', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.setDefaultNavigationTimeout(patience);
  const quiet = { quiet: false };
  page.on('console', m => {
    if (['error', 'warning'].includes(m.type()) && !quiet.quiet && !/status of (400|403|404|409|412|422)/.test(m.text())) bad('console: ' + page.url(), m.text());
  });
  page.on('pageerror', e => bad('error: ' + page.url(), e.message));
  page.on('dialog', d => { bad('a script of a user runs: ' + page.url(), ''); d.dismiss(); });
  return { context, page, quiet };
}

// steady takes out of a text all that differs between two runs.
const steady = t => t.replace(/whpk_\S+/g, 'KEY').replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'ID')
  .replace(/\b\d+\.\d{3} s\b/g, 'TIME')
  .replace(/(in )?\d+ (s|min|h|days)( ago)?/g, 'TIME')
  .replace(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?( UTC)?/g, 'TIME')
  .replace(/^(\S+\tlive\tTIME\t)\d+\t\d+/gm, '$1N\tN').replace(/^(\S+\tpending\ttransaction\.failed\ttold\tID\t)\d+/gm, '$1N').replace(/^(calls|queues)\n\d+$/gm, '$1\nN')
  .replace(/127\.0\.0\.1:\d{2,}/g, '127.0.0.1:PORT').replace(/fence\s+\d+/g, 'fence N').replace(/x{200,}/g, 'x…').replace(/\b\d+ ms\b/g, 'N ms').replace(/[ \t]+\n/g, '\n')
  .replace(/(lag seconds|version|epoch|cursor|newest|heartbeat age seconds)(\s+)\S+/g, '$1$2N')
  .replace(/^\d\d:00: .*$/gm, 'HOUR').replace(/(In 24 hours ).*/g, '$1N').replace(/\b\d{15,}\b/g, 'CLOCK');

// 0. what is watched for is seen: a script in the page, of a user and of a button, is stopped, and that is told
{
  const seen = [];
  const { context, page } = await look({}, what => seen.push(what));
  await page.goto(base + c + 'now');
  await page.evaluate(() => {
    document.body.insertAdjacentHTML('beforeend', '<p onclick="alert(1)" id="planted">x</p>');
    document.head.append(Object.assign(document.createElement('script'), { textContent: 'alert(2)' }));
    document.getElementById('planted').click();
  });
  await calm('reports of the policy', () => seen.length >= 2);
  check(!seen.some(w => w.startsWith('a script')), 'the policy lets a script of a user run');
  await context.close();
}

// 1. each screen: golden text, axe, reach, pictures
for (const scheme of ['light', 'dark']) for (const width of [1280, 375]) {
  const { context, page } = await look({ colorScheme: scheme, viewport: { width, height: 800 }, bypassCSP: false });
  for (const [name, at] of looked) {
    await page.goto(base + c + at, { waitUntil: 'load' });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    check(wide <= 0, `${name} is ${wide} wider than ${width}`);
    if ((scheme === 'light') === (width === 1280)) { // contrast is of the scheme, sizes are of the width: two of four see both
      await page.evaluate(axe); // in its own world: the policy of the page holds
      const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      const bad = found.violations.filter(v => ['serious', 'critical'].includes(v.impact));
      // what can be used has a place in the order of the keyboard, and none has a place of its own making
      const away = await page.evaluate(() => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, .wide, pre')]
        .filter(e => e.tabIndex !== 0).map(e => e.outerHTML.slice(0, 100)));
      check(away.length === 0, `keyboard: ${name} ${scheme} ${width}`, away.join());
      check(bad.length === 0, `axe: ${name} ${scheme} ${width}`, JSON.stringify(bad.map(v => [v.id, v.nodes.slice(0, 2).map(n => n.html)])));
    }
    const text = steady(await page.evaluate(() => document.querySelector('main').innerText)) + '\n';
    const file = path.join(here, 'golden', name + '.txt');
    if (!update) check(fs.existsSync(file) && fs.readFileSync(file, 'utf8') === text, `golden ${name} ${scheme} ${width}`, text);
    else if (scheme === 'light' && width === 1280) { fs.mkdirSync(path.dirname(file), { recursive: true }); fs.writeFileSync(file, text); }
    if (shots) await page.screenshot({ path: path.join(shots, `${name}-${scheme}-${width}.png`), fullPage: true });
    if (update && (scheme === 'light' && width === 1280 && ['now', 'transaction', 'queue', 'machine', 'flow'].includes(name) || scheme === 'dark' && width === 375 && name === 'now')) {
      fs.mkdirSync(pictures, { recursive: true });
      await page.screenshot({ path: path.join(pictures, name + (scheme === 'dark' ? '-dark' : '') + '.png'), clip: { x: 0, y: 0, width, height: 760 } });
    }
  }
  await context.close();
}
console.log('screens: seen');

// 2. by keyboard: the lever of the root is reached, opened and tried without a mouse
{
  const { context, page } = await look();
  await page.goto(base + c + screens.transaction);
  let reached = false;
  for (let i = 0; i < 80 && !reached; i++) {
    await page.keyboard.press('Tab');
    reached = await page.evaluate(() => document.activeElement?.value === 'try');
  }
  check(reached, 'the button that tries is not reached by keyboard');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.said.dry');
  // a form that is closed is opened, filled and sent by keys alone
  await page.goto(base + c + 'senders/acc-1');
  await page.locator('main summary').first().focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.type('by keys');
  for (let i = 0; i < 10 && await page.evaluate(() => document.activeElement?.value !== 'try'); i++) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.said');
  await context.close();
}

// 3. without script: each page reads, each lever is tried
{
  const { context, page } = await look({ javaScriptEnabled: false });
  let tried = 0;
  for (const [name, at] of looked) {
    await page.goto(base + c + at);
    check(await page.locator('main h1').count() === 1, 'without script: ' + name);
    const n = await page.locator('button[value=try]').count();
    for (let i = 0; i < n; i++) {
      await page.goto(base + c + at);
      const form = page.locator('form:has(button[value=try])').nth(i);
      const lever = await form.locator('input[name=lever]').inputValue();
      for (const d of await page.locator('main details').all()) if (await d.getAttribute('open') === null) await d.locator('summary').first().click();
      for (const f of await form.locator('input[required], textarea[required]').all()) if (await f.inputValue() === '') await f.fill('because');
      await form.locator('button[value=try]').click();
      await page.waitForLoadState();
      check(await page.locator('.said').count() > 0, 'without script: ' + lever + ' on ' + name, await page.textContent('main').catch(() => ''));
      tried++;
    }
  }
  console.log('levers tried without script:', tried);
  check(only || tried > 40, 'few levers: ' + tried);
  await context.close();
}

// 4. a stuck head is found from now and moved in three clicks
{
  const { context, page } = await look();
  await page.goto(base + '/');
  await page.click('main a:has-text("payout-1")'); // 1
  await page.fill('details[open] input[name=reason]', 'the bank is open');
  await page.click('details[open] button[value=do]'); // 2: the lever of the root is open
  await page.waitForSelector('.said.done');
  check((await api('GET', '/queues/payouts')).paused === false, 'the queue is still paused');
  await api('POST', '/queues/payouts/pause', {});
  await context.close();
}

// 5. a bulk cancel does exactly what its try said
{
  const { context, page } = await look();
  await page.goto(base + c + 'transactions?queue=payouts&limit=1');
  const form = page.locator('#lever-transactions-cancel');
  await form.locator('summary').click();
  await form.locator('button[value=try]').click();
  const said = async () => (await page.locator('.said dl').innerText()).replace(/\s+/g, ' ');
  const would = await said();
  await page.locator('#lever-transactions-cancel button[value=do]').click();
  await page.waitForSelector('.said.done');
  check(await said() === would && would.includes('changed 3'), 'a bulk does something else than was tried', would + ' / ' + await said());
  await context.close();
}

// 6. a stream survives a restart of the process, and stops when its tab is hidden
{
  const { context, page, quiet } = await look();
  await page.goto(base + c + 'now');
  const asOf = () => page.locator('#live time').first().getAttribute('datetime', { timeout: patience });
  const changes = async what => {
    const before = await asOf();
    await page.waitForFunction(t => document.querySelector('#live time')?.getAttribute('datetime') !== t, before, { timeout: patience, polling: 200 })
      .catch(() => check(false, what));
  };
  // still waits for four seconds without an update: what was on its way when the tab was hidden may come before.
  const still = async () => {
    for (let before = await asOf(), end = Date.now() + patience; Date.now() < end;) {
      await page.waitForTimeout(4000);
      const now = await asOf();
      if (now === before) return true;
      before = now;
    }
    return false;
  };
  await changes('the page is not live');
  const hide = hidden => page.evaluate(h => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => h });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  check(await still(), 'a hidden tab is kept up to date');
  await hide(false);
  await changes('a tab that is seen again is not live');
  // one that is hidden while it waits to connect again is not kept up to date either
  quiet.quiet = true;
  const stopped = stop();
  await page.waitForFunction(() => new Promise(done =>
    document.addEventListener('htmx:sse:before:connection', () => done(true), { once: true })), null, { timeout: patience });
  await hide(true);
  await stopped;
  await start();
  check(await still(), 'a tab that is hidden while it connects again is kept up to date');
  await hide(false);
  await changes('a tab that is seen again after a restart is not live');
  quiet.quiet = false;
  // one that is opened in the background asks for nothing until it is looked at
  const back = await context.newPage();
  await back.addInitScript(() => Object.defineProperty(document, 'hidden', { configurable: true, get: () => !window.shown }));
  const streams = [];
  back.on('request', r => { if (r.headers().accept?.includes('text/event-stream')) streams.push(r.url()); });
  await back.goto(base + c + 'now', { waitUntil: 'load' });
  await back.waitForTimeout(2000);
  check(streams.length === 0, 'a tab that is opened in the background is kept up to date', streams.join());
  await back.evaluate(() => { window.shown = true; document.dispatchEvent(new Event('visibilitychange')); });
  await calm('the stream of a tab that is looked at', () => streams.length === 1);
  await back.waitForFunction(t => document.querySelector('#live time')?.getAttribute('datetime') !== t,
    await back.locator('#live time').first().getAttribute('datetime'), { timeout: patience, polling: 200 });
  await back.close();
  quiet.quiet = true;
  await stop();
  await start();
  await changes('the stream has not survived the restart');
  quiet.quiet = false;
  await context.close();
}

// 6b. a page says once its reasons and levers are of an earlier moment, and shows them anew
{
  const { context, page } = await look();
  await api('PUT', '/queues/aside', {});
  await page.goto(base + c + 'queues/aside');
  check(await page.locator('#old').isHidden(), 'a page that was just loaded says that it is old');
  await page.waitForSelector('#present', { state: 'attached' });
  await page.waitForTimeout(2000);
  check(await page.locator('#old').isHidden(), 'a page says that it is old, and nothing has changed');
  await api('POST', '/queues/aside/pause', {});
  await page.locator('#old').waitFor({ state: 'visible', timeout: patience }).catch(() => check(false, 'a page does not say that it is old'));
  await page.locator('#old a').click();
  await page.waitForLoadState('load');
  check(await page.locator('#old').isHidden(), 'a page that was loaded anew says that it is old');
  await api('DELETE', '/queues/aside');
  await context.close();
}

// 6c. a page whose first stream is refused asks for it again, and says that it is not followed while nothing comes
{
  const { context, page, quiet } = await look();
  quiet.quiet = true;
  let refuse = true, asked = 0;
  await page.route('**/now?live=1', route => { asked++; return refuse ? route.fulfill({ status: 503, body: 'not now' }) : route.continue(); });
  await page.clock.install();
  await page.goto(base + c + 'now');
  await calm('the first stream', () => asked === 1);
  check(await page.locator('#lost').isHidden(), 'a page that was just loaded says that it is not followed');
  await page.clock.fastForward(61000);
  await page.locator('#lost').waitFor({ state: 'visible', timeout: patience }).catch(() => check(false, 'a page does not say that it is not followed'));
  await calm('another stream', () => asked > 1);
  refuse = false;
  await page.clock.fastForward(16000);
  await page.clock.resume();
  await page.locator('#lost').waitFor({ state: 'hidden', timeout: patience }).catch(() => check(false, 'a page that is followed again says that it is not'));
  await context.close();
}

// 7. the output of a job comes to its page while it runs
{
  const { context, page } = await look();
  await page.goto(base + c + screens.job);
  await ids.say(2, 'half of it is done');
  await page.waitForFunction(() => document.querySelector('#log .stderr')?.innerText === 'half of it is done');
  await context.close();
}

// 8. without script each kind of lever is done once, and the page says what came of it: the last section, since it leaves
// little as it was
{
  const { context, page } = await look({ javaScriptEnabled: false });
  const kind = lever => lever.split('/').filter((_, i) => i === 0 || i % 2 === 1).join('/');
  const seen = new Set();
  let done = 0;
  for (const [name, at] of looked) for (;;) {
    await page.goto(base + c + at);
    const levers = [];
    for (const l of await page.locator('form:has(button[value=do]) input[name=lever]').all()) levers.push(await l.inputValue());
    const i = levers.findIndex(l => !seen.has(kind(l)));
    if (i < 0) break;
    seen.add(kind(levers[i]));
    const form = page.locator('form:has(button[value=do])').nth(i);
    for (const d of await page.locator('main details').all()) if (await d.getAttribute('open') === null) await d.locator('summary').first().click();
    for (const f of await form.locator('input[required], textarea[required]').all()) if (await f.inputValue() === '') await f.fill('because');
    await form.locator('button[value=do]').click();
    await page.waitForLoadState();
    check(await page.locator('.said').count() === 1 && await page.locator('.said.dry').count() === 0, `without script: ${levers[i]} of ${name} is not done`, await page.textContent('main').catch(() => ''));
    done += await page.locator('.said.done, .said.pending').count();
  }
  console.log('levers done without script:', done, 'of', seen.size, 'kinds');
  check(only || done > 40, 'few levers: ' + done);
  await context.close();
}

await browser.close();
await stop();
fs.rmSync(state, { recursive: true, force: true });
console.log(failed ? `${failed} failed` : 'ok');
process.exit(failed ? 1 : 0);
