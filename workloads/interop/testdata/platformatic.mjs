// Shows what @platformatic/kafka can do with a broker: platformatic.mjs ADDRESS
// PREFIX. See package interop for what it prints. Its consumers are members of
// groups, but for their fetch, which is a request as it is.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import process from 'node:process'
import { pathToFileURL } from 'node:url'

const entry = createRequire(process.env.MODULES + '/').resolve('@platformatic/kafka')
const { Admin, Consumer, Producer, ListOffsetTimestamps, ConfigResourceTypes, stringSerializers } = await import(pathToFileURL(entry))
const { version } = JSON.parse(readFileSync(`${process.env.MODULES}/node_modules/@platformatic/kafka/package.json`))

const [address, prefix] = process.argv.slice(2)
const records = 500
const base = { clientId: 'interop', bootstrapBrokers: [address], retries: 3 }

const ok = what => console.log(`ok @platformatic/kafka ${version}: ${what}`)
const json = v => JSON.stringify(v, (_, x) => typeof x === 'bigint' ? `${x}` : x)
const check = (what, right, found) => {
  if (!right) throw new Error(`${what}: ${json(found)}`)
}
const numbered = (topic, i) => ({ topic, partition: 0, key: `k-${i}`, value: `v-${i}${'.'.repeat(100)}`, headers: { h: `${i}` } })

async function produce(topic, options) {
  const producer = new Producer({ ...base, serializers: stringSerializers, autocreateTopics: true })
  for (let i = 0; i < records; i += 50) {
    const { offsets } = await producer.send({ ...options, messages: Array.from({ length: 50 }, (_, j) => numbered(topic, i + j)) })
    if (options.acks !== 0) check('offset', offsets[0].offset === BigInt(i), offsets)
  }
  await producer.close()
}

async function consume(topic) {
  const consumer = new Consumer({ ...base, groupId: 'none' })
  const begin = await consumer.listOffsets({ topics: [topic], timestamp: ListOffsetTimestamps.EARLIEST })
  const end = await consumer.listOffsets({ topics: [topic] })
  check('offsets', begin.get(topic)[0] === 0n && end.get(topic)[0] === BigInt(records), [begin.get(topic), end.get(topic)])
  const topicId = (await consumer.metadata({ topics: [topic] })).topics.get(topic).id
  let next = 0n
  while (next < records) {
    const { responses } = await consumer.fetch({
      node: 1, minBytes: 1, maxBytes: 1 << 20, maxWaitTime: 1000,
      topics: [{ topicId, partitions: [{ partition: 0, currentLeaderEpoch: -1, fetchOffset: next, lastFetchedEpoch: -1, partitionMaxBytes: 1 << 20 }] }],
    })
    const [p] = responses[0].partitions
    check('fetch', p.errorCode === 0 && p.records?.length > 0, p)
    for (const batch of p.records) {
      for (const r of batch.records) {
        const offset = batch.firstOffset + BigInt(r.offsetDelta)
        if (offset < next) continue
        check('record', offset === next && `${r.key}` === `k-${offset}` && `${r.value}` === `v-${offset}${'.'.repeat(100)}`, r)
        next++
      }
    }
  }
  await consumer.close(true)
}

async function administer(topic) {
  const admin = new Admin(base)
  const created = await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1, configs: [{ name: 'max.message.bytes', value: '2000000' }] })
  check('create', created[0].name === topic && created[0].partitions === 2, created)
  const names = await admin.listTopics()
  check('list', names.includes(topic), names)
  const metadata = await admin.metadata({ topics: [topic], forceUpdate: true })
  check('metadata', metadata.topics.get(topic).partitionsCount === 2 && metadata.brokers.size === 1, [...metadata.brokers])
  const [{ configs }] = await admin.describeConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }] })
  check('configuration', configs.find(c => c.name === 'max.message.bytes').value === '2000000', configs)
  await admin.deleteTopics({ topics: [topic] })
  await admin.close()
}

// snappy, lz4 and zstd need packages of other people, or a younger Node.js.
for (const compression of ['none', 'gzip']) {
  for (const acks of [0, 1, -1]) {
    const topic = `${prefix}-${compression}-${acks}`
    await produce(topic, { acks, compression })
    console.log(`wrote ${topic} ${records} ${compression}`)
  }
  await consume(`${prefix}-${compression}--1`)
  ok(`produce, offsets and fetch, ${compression}`)
}
await produce(`${prefix}-idempotent`, { idempotent: true })
console.log(`wrote ${prefix}-idempotent ${records} none`)
ok('idempotent producer')
await administer(`${prefix}-admin`)
ok('admin: create, list, metadata, configuration, delete')
