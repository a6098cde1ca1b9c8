// A whole worker in plain Node, without packages: payments of any type into a ledger that is one file, and greetings
// (type GREET). It keeps docs/worker-contract.md, whose paragraphs it names.
//
//   node examples/worker.mjs 127.0.0.1:9104 ledger.jsonl
//
// WORKER_SECRET=whsec_... has it believe only what is signed with that secret.
import { createHmac, timingSafeEqual } from 'node:crypto'
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, truncateSync, writeSync } from 'node:fs'
import { createServer } from 'node:http'

const most = 2 << 20 // bytes of a body: more than 1.5 wants
const [address = '127.0.0.1:0', file = 'ledger.jsonl'] = process.argv.slice(2)

// The ledger. Each line is an answer by token, a payment by hash, or the highest fence of a line.
const answers = new Map() // token -> answer
const payments = new Map() // hash -> number of its line, which stands for the block
const fences = new Map() // Postern-Line -> fence

function learn (entry, number) {
  if (entry.line !== undefined) fences.set(entry.line, entry.fence)
  if (entry.token !== undefined) answers.set(entry.token, entry.answer)
  if (entry.paid !== undefined && !payments.has(entry.paid)) payments.set(entry.paid, number)
}

// load reads the ledger again after a restart. A last line without an end was cut off by a crash, before its answer was
// given: it never happened.
function load () {
  if (!existsSync(file)) return 0
  const bytes = readFileSync(file)
  const whole = bytes.lastIndexOf(0x0a) + 1
  if (whole < bytes.length) truncateSync(file, whole)
  const lines = bytes.subarray(0, whole).toString().split('\n').slice(0, -1)
  lines.forEach((text, i) => learn(JSON.parse(text), i + 1))
  return lines.length
}

let written = load()
const ledger = openSync(file, 'a')

// keep has an entry on the disk before anything is answered (6.2). Nothing else runs meanwhile, so that two calls with
// one token cannot both find it new (6.3). Of a disk that fails it is not known what it holds: the process ends without
// an answer, and reads the ledger when it is started again.
function keep (entry) {
  try {
    writeSync(ledger, JSON.stringify(entry) + '\n')
    fsyncSync(ledger)
  } catch (error) {
    console.error(`${file} cannot be written:`, error)
    process.exit(1)
  }
  learn(entry, ++written)
}

const refuse = (status, klass, code, message) => [status, { error: { class: klass, code, message } }]

// fee is what to offer: postern.fee, else the first fee times postern.fee_factor, rounded up (3.1).
const firstFee = 100n
function fee ({ fee, fee_factor: factor = '1' }) {
  if (fee) return fee
  const [whole, part = ''] = factor.split('.')
  const one = 10n ** BigInt(part.length)
  return String((firstFee * BigInt(whole + part) + one - 1n) / one)
}

function dispatch (type, call, headers) {
  const token = call.postern?.token ?? headers['idempotency-key']
  if (typeof token !== 'string' || token === '') return refuse(400, 'rejected', 'no_token', 'the call has no token') // 1.4
  const line = headers['postern-line']
  const fence = call.postern?.fence ?? Number(headers['postern-fence'])
  if (line !== undefined) { // 7.1: without a line any fence is taken
    if (fence < fences.get(line)) return refuse(409, 'ambiguous', 'stale_fence', `a higher fence than ${fence} came before`) // 7.2
    if (fence !== fences.get(line)) keep({ line, fence })
  }
  const before = answers.get(token)
  if (before !== undefined) return [200, before] // 6.1
  const data = call.txData?.data
  let answer, paid
  if (data === null || typeof data !== 'object' || Array.isArray(data)) {
    answer = { error: { class: 'rejected', code: 'bad_data', message: 'data: want an object' } } // 5.8
  } else if (type === 'GREET') {
    answer = { done: { greeting: `Hello, ${data.name ?? 'you'}!` } }
  } else {
    paid = 'js-' + token.slice(0, token.lastIndexOf('.')) // one for all attempts (6.5)
    answer = { hash: paid, fee: fee(call.postern ?? {}) }
  }
  keep({ token, answer, paid })
  return [200, answer]
}

// byHash says what became of a payment: it is in the ledger, or there never was one (8.3).
function byHash (hash) {
  const number = payments.get(hash)
  if (number === undefined) return { state: 'unknown' }
  return { state: 'included', hash, block_height: String(number), confirmations: written - number + 1 }
}

// byToken says what became of a call (8.2).
function byToken (token) {
  const answer = answers.get(token)
  if (answer === undefined) return { state: 'unknown' }
  if (answer.error) return { state: 'failed', failure_reason: answer.error.message }
  return answer.done ? { state: 'done', done: answer.done } : byHash(answer.hash)
}

function status (question) {
  if (typeof question.token === 'string') return [200, byToken(question.token)]
  if (typeof question.hash === 'string') return [200, byHash(question.hash)]
  return refuse(400, 'rejected', 'bad_question', 'want {"token": "..."} or {"hash": "..."}')
}

function batch (question) {
  if (!Array.isArray(question.hashes)) return refuse(400, 'rejected', 'bad_question', 'want {"hashes": [...]}')
  return [200, { statuses: question.hashes.map(byHash) }]
}

// hook notes how a transaction ended, once per token (9.2).
function hook (verb, call) {
  const token = call.postern?.token
  if (typeof token !== 'string') return refuse(400, 'rejected', 'no_token', 'the call has no token')
  if (!answers.has(token)) keep({ token, answer: { done: verb } })
  return [200, {}]
}

const secret = process.env.WORKER_SECRET
const key = secret && Buffer.from(secret.replace(/^whsec_/, ''), 'base64')

// believed says whether a call is signed for this path, and not long ago (section 10).
function believed (headers, below, body) {
  if (!key) return true
  const [id, at, signatures] = ['id', 'timestamp', 'signature'].map(name => headers['webhook-' + name] ?? '')
  if (!id.startsWith(below + '/') || !(Math.abs(Date.now() / 1000 - Number(at)) < 300)) return false
  const want = createHmac('sha256', key).update(`${id}.${at}.`).update(body).digest()
  return signatures.split(' ').some(one => {
    const got = Buffer.from(one.replace(/^v1,/, ''), 'base64')
    return got.length === want.length && timingSafeEqual(got, want)
  })
}

// answer finds what to do with a call whose body is here.
function answer (method, path, headers, body) {
  if (method === 'GET' && path === '/health') return [200, { ok: true }]
  const [, verb, encoded, ...rest] = path.split('/')
  const known = ['dispatch', 'status', 'on-success', 'on-failure'].includes(verb)
  if (method !== 'POST' || rest.length > 0 || !(known ? encoded : path === '/status:batch')) {
    return [404, { message: 'there is no such call' }] // 1.2
  }
  const type = known ? decodeURIComponent(encoded) : ''
  if (!believed(headers, known ? `${verb}/${type}` : verb, body)) {
    return refuse(401, 'blocked', 'bad_signature', 'this call is not signed with the secret of this worker') // 10.3
  }
  const call = JSON.parse(body)
  if (call === null || typeof call !== 'object' || Array.isArray(call)) throw new SyntaxError('want an object')
  if (verb === 'dispatch') return dispatch(type, call, headers)
  if (verb === 'status') return status(call)
  return verb === 'status:batch' ? batch(call) : hook(verb, call)
}

const server = createServer((request, response) => {
  const parts = []
  let size = 0
  const say = ([code, body]) => response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  request.on('data', part => {
    if ((size += part.length) <= most) return parts.push(part)
    say(refuse(413, 'rejected', 'too_large', `a body of more than ${most} bytes`)) // 1.5
    request.removeAllListeners('data').removeAllListeners('end').destroy()
  })
  request.on('end', () => {
    try {
      say(answer(request.method, new URL(request.url, 'http://worker').pathname, request.headers, Buffer.concat(parts)))
    } catch (error) {
      if (error instanceof SyntaxError || error instanceof URIError) {
        return say(refuse(400, 'rejected', 'bad_request', String(error))) // 1.4
      }
      console.error(error) // a bug: what was done is not known
      say(refuse(500, 'ambiguous', 'failed', String(error)))
    }
  })
})

const [host, port] = address.split(':')
server.listen(Number(port), host, () => console.log(`worker at http://${host}:${server.address().port}`))
process.on('SIGTERM', () => server.close(() => { closeSync(ledger); process.exit(0) }))
