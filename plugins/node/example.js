// A plugin for Node, for host.c: what the example in C does by the names `greet`, `echo` and `check`.
'use strict';

const HEAD = 12;

function fields(message) {
  const found = new Map();
  for (let at = 8; at + 8 <= message.length;) {
    const middle = at + 8 + message.readUInt32LE(at);
    const end = middle + message.readUInt32LE(at + 4);
    const name = message.toString('latin1', at + 8, middle).toLowerCase();
    if (!found.has(name)) found.set(name, message.subarray(middle, end));
    at = end;
  }
  return found;
}

function answer(status, body) {
  const parts = [':status', String(status), ':body', body].map((part) => Buffer.from(part));
  const message = [Buffer.from([1, 4, 0, 0, 2, 0, 0, 0])];
  for (let at = 0; at < parts.length; at += 2) {
    const lengths = Buffer.alloc(8);
    lengths.writeUInt32LE(parts[at].length, 0);
    lengths.writeUInt32LE(parts[at + 1].length, 4);
    message.push(lengths, parts[at], parts[at + 1]);
  }
  return Buffer.concat(message);
}

async function handle(question) {
  const asked = fields(question);
  const text = (name) => (asked.get(name) || Buffer.alloc(0)).toString('latin1');
  switch (text(':function')) {
    case 'greet': return answer(200, `hello ${text(':args')} from Node\n`);
    case 'echo': return answer(200, asked.get(':body'));
    case 'check': return text('x-key') === 'key' ? answer(204, '') : answer(403, 'wrong key\n');
    default: return answer(404, 'no such function\n');
  }
}

let received = Buffer.alloc(0);

process.stdin.on('data', (chunk) => {
  received = Buffer.concat([received, chunk]);
  while (received.length >= HEAD) {
    const end = HEAD + received.readUInt32LE(8);
    if (received.length < end) break;
    const [call, question] = [received.subarray(0, 8), received.subarray(HEAD, end)];
    received = received.subarray(end);
    handle(question).catch(() => answer(500, '')).then((message) => {
      const length = Buffer.alloc(4);
      length.writeUInt32LE(message.length);
      process.stdout.write(Buffer.concat([call, length, message]));
    });
  }
});

process.stdin.on('end', () => process.exit(0));
