// Shows what kafkajs can do with a broker: kafkajs.mjs ADDRESS PREFIX. See
// package interop for what it prints. Its consumers are members of groups,
// all of them, so what it wrote is only read by others.
import { createRequire } from 'node:module'
import process from 'node:process'

const require = createRequire(process.env.MODULES + '/')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')
const { version } = require('kafkajs/package.json')

const [address, prefix] = process.argv.slice(2)
const records = 500
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.ERROR, retry: { retries: 3 } })

const ok = what => console.log(`ok kafkajs ${version}: ${what}`)
const check = (what, right, found) => {
  if (!right) throw new Error(`${what}: ${JSON.stringify(found)}`)
}
const numbered = i => ({ partition: 0, key: `k-${i}`, value: `v-${i}${'.'.repeat(100)}`, headers: { h: `${i}` } })

async function produce(topic, { acks, compression, ...options }) {
  const producer = kafka.producer({ allowAutoTopicCreation: true, ...options })
  await producer.connect()
  for (let i = 0; i < records; i += 50) {
    const messages = Array.from({ length: 50 }, (_, j) => numbered(i + j))
    const [answer] = await producer.send({ topic, acks, compression, messages })
    if (acks !== 0) check('offset', answer.errorCode === 0 && answer.baseOffset === String(i), answer)
  }
  await producer.disconnect()
}

async function administer(topic) {
  const admin = kafka.admin()
  await admin.connect()
  const wanted = { topic, numPartitions: 2, replicationFactor: 1, configEntries: [{ name: 'max.message.bytes', value: '2000000' }] }
  check('create', await admin.createTopics({ topics: [wanted] }))
  check('create again', !(await admin.createTopics({ topics: [wanted] })))
  const names = await admin.listTopics()
  check('list', names.includes(topic), names)
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  check('metadata', topics[0].partitions.length === 2 && topics[0].partitions[0].leader === 1, topics)
  const empty = await admin.fetchTopicOffsets(topic)
  check('offsets', empty.length === 2 && empty[0].low === '0' && empty[0].high === '0', empty)
  const full = await admin.fetchTopicOffsetsByTimestamp(`${prefix}-none-all`, Date.now() - 3600000)
  check('offsets by time', full[0].offset === '0', full)
  const { resources } = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
  const size = resources[0].configEntries.find(c => c.configName === 'max.message.bytes')
  check('configuration', size.configValue === '2000000' && !size.isDefault, size)
  const cluster = await admin.describeCluster()
  check('cluster', cluster.brokers.length === 1 && cluster.controller === 1 && cluster.clusterId.length === 22, cluster)
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
}

// snappy, lz4 and zstd need packages of other people.
for (const [name, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]]) {
  for (const [acksName, acks] of [['0', 0], ['1', 1], ['all', -1]]) {
    const topic = `${prefix}-${name}-${acksName}`
    await produce(topic, { acks, compression })
    console.log(`wrote ${topic} ${records} ${name}`)
  }
  ok(`produce, ${name}`)
}
await produce(`${prefix}-idempotent`, { acks: -1, idempotent: true })
console.log(`wrote ${prefix}-idempotent ${records} none`)
ok('idempotent producer')
await administer(`${prefix}-admin`)
ok('admin: create, list, metadata, offsets, configuration, cluster, delete')
