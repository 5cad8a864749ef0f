// Runs published GraphQL clients, unchanged, against a scidex node.
//
//   GRAPHQL_URL=http://127.0.0.1:8080/graphql WS_URL=ws://127.0.0.1:8080/graphql TOKEN=<jwt> npm test
//
// TOKEN's caller must be allowed to create hypotheses.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Client, fetchExchange, subscriptionExchange } from '@urql/core';
import { auditServer } from 'graphql-http';
import { createClient } from 'graphql-ws';
import { SubscriptionClient } from 'subscriptions-transport-ws';
import WebSocket from 'ws';

const { GRAPHQL_URL, WS_URL, TOKEN } = process.env;
for (const [name, value] of Object.entries({ GRAPHQL_URL, WS_URL, TOKEN })) {
  if (!value) throw new Error(`${name} is not set`);
}

const authorization = `Bearer ${TOKEN}`;
const patience = 15_000; // ms, for anything to arrive
const settle = 1_000; // ms, for a subscription to start or a second copy to show up

const eventsDocument = `
  subscription ($since: EventId) {
    events(since: $since) { events { eventId eventType ref } cursor caughtUp }
  }`;

const createDocument = `
  mutation ($title: String!) {
    createArtifact(input: { type: "hypothesis", title: $title, content: { statement: "Clients need no changes." } }) {
      __typename
      ... on WriteResult { ref eventId consistencyToken artifact { title content } }
      ... on Problem { code message }
    }
  }`;

const http = new Client({
  url: GRAPHQL_URL,
  preferGetMethod: false,
  fetchOptions: { headers: { authorization } },
  exchanges: [fetchExchange],
});

/** Creates an artifact over HTTP and returns its WriteResult. */
async function create(client = http) {
  const title = `client check ${randomUUID()}`;
  const { data, error } = await client.mutation(createDocument, { title }).toPromise();
  assert.equal(error, undefined);
  const written = data.createArtifact;
  assert.equal(written.__typename, 'WriteResult', JSON.stringify(written));
  assert.match(written.eventId, /^[0-9]+$/);
  assert.ok(written.consistencyToken);
  assert.equal(written.artifact.title, title);
  assert.deepEqual(written.artifact.content.statement, 'Clients need no changes.');
  return written;
}

/** Collects what one subscription delivers; its methods fit all three clients. */
class Inbox {
  batches = [];
  failure = undefined;
  completed = false;

  next({ data, errors, error }) {
    if (errors || error) this.failure = errors ?? error;
    else this.batches.push(data.events);
  }

  get events() {
    return this.batches.flatMap((batch) => batch.events);
  }

  count(eventId) {
    return this.events.filter((event) => event.eventId === eventId).length;
  }

  get sink() {
    return {
      next: (result) => this.next(result),
      error: (error) => { this.failure = error; },
      complete: () => { this.completed = true; },
    };
  }

  /** Fails unless the event arrives, and once. */
  async wantOnce(written) {
    const deadline = Date.now() + patience;
    while (this.count(written.eventId) === 0 && !this.failure && Date.now() < deadline) await sleep(20);
    await sleep(settle);
    assert.equal(this.failure, undefined, `subscription failed: ${JSON.stringify(this.failure)}`);
    assert.equal(this.completed, false, 'the subscription has ended');
    assert.equal(this.count(written.eventId), 1, `event ${written.eventId} among ${JSON.stringify(this.events)}`);
    const event = this.events.find(({ eventId }) => eventId === written.eventId);
    assert.equal(unversioned(event.ref), unversioned(written.ref));
    assert.match(this.batches.at(-1).cursor, /^[0-9]+$/);
    assert.ok(BigInt(this.batches.at(-1).cursor) >= BigInt(written.eventId));
  }
}

const unversioned = (ref) => ref.split('@')[0];

function websocketClient(options = {}) {
  return createClient({
    url: WS_URL,
    webSocketImpl: WebSocket,
    connectionParams: { authorization },
    retryAttempts: 0,
    ...options,
  });
}

test('graphql-ws receives each event once', { timeout: 60_000 }, async () => {
  const client = websocketClient();
  const inbox = new Inbox();
  const unsubscribe = client.subscribe({ query: eventsDocument }, inbox.sink);
  try {
    await sleep(settle);
    const first = await create();
    await inbox.wantOnce(first);

    // A second subscription of the same socket resumes after the event before.
    const resumed = new Inbox();
    const stop = client.subscribe(
      { query: eventsDocument, variables: { since: String(BigInt(first.eventId) - 1n) } },
      resumed.sink,
    );
    await resumed.wantOnce(first);
    const second = await create();
    await Promise.all([inbox.wantOnce(second), resumed.wantOnce(second)]);
    stop();
  } finally {
    unsubscribe();
    await client.dispose();
  }
});

test('graphql-ws runs queries and reports an invalid document', { timeout: 30_000 }, async () => {
  const client = websocketClient();
  const first = (query) => client.iterate({ query }).next();
  try {
    const { value } = await first('{ __typename }');
    assert.deepEqual(value, { ...value, data: { __typename: 'Query' } });
    await assert.rejects(first('{ nope }'), (errors) => Array.isArray(errors) && errors[0].message !== '');
    const again = await first('{ __typename }');
    assert.equal(again.value.data.__typename, 'Query');
  } finally {
    await client.dispose();
  }
});

test('@urql/core subscribes over graphql-ws and writes over HTTP', { timeout: 60_000 }, async () => {
  const socket = websocketClient();
  const client = new Client({
    url: GRAPHQL_URL,
    preferGetMethod: false,
    fetchOptions: { headers: { authorization } },
    exchanges: [
      fetchExchange,
      subscriptionExchange({
        forwardSubscription: (request) => ({
          subscribe: (sink) => ({
            unsubscribe: socket.subscribe({ ...request, query: request.query ?? '' }, sink),
          }),
        }),
      }),
    ],
  });
  const inbox = new Inbox();
  const { unsubscribe } = client.subscription(eventsDocument, {}).subscribe((result) => inbox.next(result));
  try {
    await sleep(settle);
    await inbox.wantOnce(await create(client));
  } finally {
    unsubscribe();
    await socket.dispose();
  }
});

test('@urql/core queries by GET', { timeout: 30_000 }, async () => {
  const result = await http.query('{ __typename }', {}, { preferGetMethod: 'force' }).toPromise();
  assert.equal(result.error, undefined);
  assert.equal(result.data.__typename, 'Query');
});

test('subscriptions-transport-ws (legacy) receives each event once', { timeout: 60_000 }, async () => {
  const client = new SubscriptionClient(
    WS_URL,
    { connectionParams: { authorization }, reconnect: false },
    WebSocket,
  );
  const inbox = new Inbox();
  const { unsubscribe } = client.request({ query: eventsDocument }).subscribe(inbox.sink);
  try {
    await sleep(settle);
    await inbox.wantOnce(await create());
  } finally {
    unsubscribe();
    client.close();
  }
});

test('graphql-http finds no error', { timeout: 60_000 }, async (t) => {
  const results = await auditServer({
    url: GRAPHQL_URL,
    fetchFn: (url, init = {}) => fetch(url, { ...init, headers: { ...init.headers, authorization } }),
  });
  const by = (status) => results.filter((result) => result.status === status);
  t.diagnostic(`${results.length} audits: ${by('ok').length} ok, ${by('notice').length} notices, ${by('warn').length} warnings`);
  for (const { id, name, reason, status } of [...by('warn'), ...by('notice')]) {
    t.diagnostic(`${status} ${id} ${name}: ${reason}`);
  }
  assert.deepEqual(by('error').map(({ id, name, reason }) => `${id} ${name}: ${reason}`), []);
});

test('a refused token closes with 4403', { timeout: 30_000 }, async () => {
  const closed = await new Promise((resolve, reject) => {
    const client = websocketClient({
      connectionParams: { authorization: 'Bearer not-a-token' },
      shouldRetry: () => false,
      on: { closed: resolve },
    });
    client.subscribe({ query: eventsDocument }, {
      next: () => reject(new Error('a refused caller received an event')),
      error: () => {}, // the close event, which `closed` has too
      complete: () => {},
    });
  });
  assert.equal(closed.code, 4403);
});
