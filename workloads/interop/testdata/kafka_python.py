"""Shows what kafka-python can do with a broker: kafka_python.py ADDRESS PREFIX.

See package interop for what it prints. It runs with kafka-python 2.0.2 as well
as with those that came after it.
"""
import sys
import time

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

ADDRESS, PREFIX = sys.argv[1:]
RECORDS = 500
OLD = kafka.__version__.startswith("2.0.")


def key(i):
    return b"k-%d" % i


def value(i):
    return b"v-%d" % i + b"." * 100


def ok(what):
    print("ok kafka-python %s: %s" % (kafka.__version__, what), flush=True)


def check(what, true, found=None):
    if not true:
        sys.exit("kafka-python %s: %s: %r" % (kafka.__version__, what, found))


def produce(topic, **config):
    producer = KafkaProducer(bootstrap_servers=ADDRESS, linger_ms=20, **config)
    sent = [producer.send(topic, value(i), key(i), headers=[("h", b"%d" % i)], partition=0) for i in range(RECORDS)]
    producer.flush(60)
    if config.get("acks") != 0:
        for i, future in enumerate(sent):
            offset = future.get(30).offset
            check("offset of record %d" % i, offset == i, offset)
    producer.close()


def consume(topic):
    consumer = KafkaConsumer(bootstrap_servers=ADDRESS, enable_auto_commit=False, consumer_timeout_ms=30000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    for i, record in zip(range(RECORDS), consumer):
        check("record %d" % i, (record.offset, record.key, record.value) == (i, key(i), value(i)), record)
        check("headers of record %d" % i, list(record.headers) == [("h", b"%d" % i)], record.headers)
    check("position", consumer.position(partition) == RECORDS, consumer.position(partition))
    consumer.seek(partition, RECORDS - 2)
    check("record after a seek", next(consumer).offset == RECORDS - 2)
    begin, end = consumer.beginning_offsets([partition]), consumer.end_offsets([partition])
    check("offsets", (begin[partition], end[partition]) == (0, RECORDS), (begin, end))
    now = int(time.time() * 1000)
    past = consumer.offsets_for_times({partition: now - 3600000})[partition]
    check("offset an hour ago", past is not None and past.offset == 0, past)
    future = consumer.offsets_for_times({partition: now + 3600000})[partition]
    check("offset in an hour", future is None, future)
    consumer.close()


def administer(topic):
    admin = KafkaAdminClient(bootstrap_servers=ADDRESS)
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"max.message.bytes": "2000000"})])
    try:
        admin.create_topics([NewTopic(topic, 1, 1)])
        sys.exit("a topic was created twice")
    except TopicAlreadyExistsError:
        pass
    check("list of topics", topic in admin.list_topics(), admin.list_topics())
    described = admin.describe_topics([topic])
    check("topic", len(described[0]["partitions"]) == 2, described)
    configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    check("configuration", "2000000" in str(configs), configs)
    cluster = admin.describe_cluster()
    check("cluster", len(cluster["brokers"]) == 1, cluster)
    admin.delete_topics([topic])
    check("list of topics", topic not in admin.list_topics(), admin.list_topics())
    admin.close()


def main():
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        for acks in (0, 1, "all"):
            topic = "%s-%s-%s" % (PREFIX, codec, acks)
            config = {} if OLD else {"enable_idempotence": False}
            produce(topic, compression_type=codec, acks=acks, **config)
            print("wrote", topic, RECORDS, codec or "none", flush=True)
        consume(topic)
        ok("produce and consume, %s" % codec)
    if not OLD:
        produce(PREFIX + "-idempotent", enable_idempotence=True, acks="all")
        print("wrote", PREFIX + "-idempotent", RECORDS, "none", flush=True)
        ok("idempotent producer")
    administer(PREFIX + "-admin")
    ok("admin: create, list, describe, configuration, cluster, delete")


main()
