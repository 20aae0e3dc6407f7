// Programs of the official JavaScript client, run against a cluster of Haru.
import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { before, after, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import * as k8s from '@kubernetes/client-node'

const PATIENCE = 60_000
const config = new k8s.KubeConfig()
config.loadFromFile(process.env.KUBECONFIG)
const core = config.makeApiClient(k8s.CoreV1Api)
let namespace

before(async () => {
  namespace = (await core.createNamespace({ body: { metadata: { generateName: 'js-' } } })).metadata.name
})

after(async () => {
  await core.deleteNamespace({ name: namespace })
})

const pod = (name, spec = {}, container = {}) => ({
  metadata: { name, namespace, labels: { app: name } },
  spec: { containers: [{ name: 'main', image: 'work:1', ...container }], ...spec },
})

async function eventually(what, holds) {
  for (const end = Date.now() + PATIENCE; ; await pause(20)) {
    const found = await holds()
    if (found) return found
    assert(Date.now() < end, `not within a minute: ${what}`)
  }
}

test('objects are created, read, replaced, patched and deleted', async () => {
  const made = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'm' }, data: { a: '1' } } })
  assert(made.metadata.creationTimestamp instanceof Date)
  await core.replaceNamespacedConfigMap({ name: 'm', namespace, body: { ...made, data: { a: '2' } } })
  const stale = core.replaceNamespacedConfigMap({ name: 'm', namespace, body: { ...made, data: { a: '3' } } })
  await assert.rejects(stale, (error) => error.code === 409)
  const body = [{ op: 'add', path: '/data/b', value: '4' }]
  const patched = await core.patchNamespacedConfigMap({ name: 'm', namespace, body })
  assert.deepEqual({ ...patched.data }, { a: '2', b: '4' })
  await core.deleteNamespacedConfigMap({ name: 'm', namespace })
  await assert.rejects(core.readNamespacedConfigMap({ name: 'm', namespace }), (error) => error.code === 404)
})

test('a refused object says which field is wrong', async () => {
  const refused = core.createNamespacedPod({ namespace, body: pod('Upper') })
  await assert.rejects(refused, (error) => error.code === 422 && String(error.body).includes('metadata.name'))
})

test('lists come in pages', async () => {
  for (let n = 0; n < 5; n++) {
    await core.createNamespacedSecret({ namespace, body: { metadata: { name: `s-${n}`, labels: { page: 'd' } } } })
  }
  const names = []
  let _continue
  do {
    const page = await core.listNamespacedSecret({ namespace, labelSelector: 'page=d', limit: 2, _continue })
    names.push(...page.items.map((item) => item.metadata.name))
    _continue = page.metadata._continue
  } while (_continue)
  assert.deepEqual(names, ['s-0', 's-1', 's-2', 's-3', 's-4'])
})

test('a watch and an informer follow a pod until it runs', async () => {
  const phases = []
  const path = `/api/v1/namespaces/${namespace}/pods`
  const selected = { labelSelector: 'app=followed', allowWatchBookmarks: true }
  const ended = (error) => error && error.name !== 'AbortError' && phases.push(error)
  // A bookmark tells where the first events end.
  const noted = (type, obj) => type !== 'BOOKMARK' && phases.push(obj.status?.phase)
  const stop = await new k8s.Watch(config).watch(path, selected, noted, ended)
  const informer = k8s.makeInformer(config, path, () => core.listNamespacedPod({ namespace }))
  const seen = new Set()
  informer.on('add', (obj) => seen.add(obj.metadata.name))
  try {
    await informer.start()
    await core.createNamespacedPod({ namespace, body: pod('followed') })
    await eventually('the watch sees it run', () => phases.includes('Running'))
    await eventually('the informer has it', () => seen.has('followed'))
    assert.equal(phases[0], 'Pending')
  } finally {
    stop.abort()
    await informer.stop()
  }
})

test('logs of a container are read', async () => {
  await core.createNamespacedPod({ namespace, body: pod('writer') })
  await eventually('it runs', async () => (await core.readNamespacedPod({ name: 'writer', namespace })).status.phase === 'Running')
  const stream = new PassThrough()
  stream.resume()
  await new k8s.Log(config).log(namespace, 'writer', 'main', stream, { follow: false })
})

test('an object of any kind is applied on the server', async () => {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config)
  const spec = (replicas) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'applied', namespace },
    spec: {
      replicas,
      selector: { matchLabels: { app: 'applied' } },
      template: { metadata: { labels: { app: 'applied' } }, spec: pod('x').spec },
    },
  })
  const apply = (replicas, manager, force) =>
    objects.patch(spec(replicas), undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply)
  await apply(1, 'first', false)
  await assert.rejects(apply(2, 'second', false), (error) => error.code === 409)
  assert.equal((await apply(2, 'second', true)).spec.replicas, 2)
  await eventually('two replicas are ready', async () => (await objects.read(spec(2))).status?.readyReplicas === 2)
})

test('a claim is allocated a device', async () => {
  const claims = config.makeApiClient(k8s.ResourceV1Api)
  const requests = [{ name: 'gpu', exactly: { deviceClassName: 'gpu.nvidia.com' } }]
  await claims.createNamespacedResourceClaim({ namespace, body: { metadata: { name: 'card' }, spec: { devices: { requests } } } })
  const resourceClaims = [{ name: 'gpu', resourceClaimName: 'card' }]
  await core.createNamespacedPod({ namespace, body: pod('holder', { resourceClaims }, { resources: { claims: [{ name: 'gpu' }] } }) })
  const claim = await eventually('the claim is reserved', async () => {
    const now = await claims.readNamespacedResourceClaim({ name: 'card', namespace })
    return now.status?.reservedFor?.length && now
  })
  assert.equal(claim.status.allocation.devices.results.length, 1)
})

test('custom objects are served as soon as they are defined', async () => {
  const group = 'js.example.com'
  const definitions = config.makeApiClient(k8s.ApiextensionsV1Api)
  const schema = { openAPIV3Schema: { type: 'object', properties: { spec: { type: 'object', properties: { size: { type: 'integer' } } } } } }
  const versions = [{ name: 'v1', served: true, storage: true, schema }]
  const names = { plural: 'boxes', singular: 'box', kind: 'Box' }
  const name = `boxes.${group}`
  await definitions.createCustomResourceDefinition({ body: { metadata: { name }, spec: { group, scope: 'Namespaced', names, versions } } })
  await eventually('it is established', async () => {
    const { status } = await definitions.readCustomResourceDefinition({ name })
    return status?.conditions?.some((condition) => condition.type === 'Established' && condition.status === 'True')
  })
  const custom = config.makeApiClient(k8s.CustomObjectsApi)
  const at = { group, version: 'v1', namespace, plural: 'boxes' }
  const box = (size) => ({ apiVersion: `${group}/v1`, kind: 'Box', metadata: { name: 'b' }, spec: { size } })
  await assert.rejects(custom.createNamespacedCustomObject({ ...at, body: box('large') }), (error) => error.code === 422)
  await custom.createNamespacedCustomObject({ ...at, body: box(3) })
  assert.equal((await custom.getNamespacedCustomObject({ ...at, name: 'b' })).spec.size, 3)
  await definitions.deleteCustomResourceDefinition({ name })
})
