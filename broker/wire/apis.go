package wire

import "github.com/twmb/franz-go/pkg/kmsg"

// Range is one API and the versions of it that pawl speaks.
type Range struct {
	Key        kmsg.Key
	Advertised int16 // least version that ApiVersions names; at most Min
	Min, Max   int16 // versions that are served, both inclusive; none if Min is above Max
}

// apis has every API that pawl serves, by key.
//
// FindCoordinator is advertised and not served: librdkafka takes a broker without
// version 0 to be one without lz4, and then sends batches uncompressed. There
// are no groups and no transactions, so the answer is always that no
// coordinator can be found.
//
// Produce is advertised from 0 and served from 3: librdkafka before 2.11.1
// takes a broker without version 0 to be one without gzip, snappy and lz4
// (KAFKA-18659). A Produce below 3 is answered with UNSUPPORTED_VERSION.
//
// A range ends below the version whose meaning pawl lacks: Produce 12 adds
// partitions to a transaction (KIP-890), Fetch 18 has the follower's high
// watermark (KIP-1166).
var apis = [...]Range{
	{kmsg.Produce, 0, 3, 11},
	{kmsg.Fetch, 4, 4, 17},
	{kmsg.ListOffsets, 1, 1, 7},
	{kmsg.Metadata, 0, 0, 13},
	{kmsg.FindCoordinator, 0, 3, 2},
	{kmsg.ApiVersions, 0, 0, 4},
	{kmsg.CreateTopics, 2, 2, 7},
	{kmsg.DeleteTopics, 1, 1, 6},
	{kmsg.DeleteRecords, 0, 0, 2},
	{kmsg.InitProducerID, 0, 0, 4},
	{kmsg.OffsetForLeaderEpoch, 2, 2, 4},
	{kmsg.DescribeACLs, 1, 1, 3},
	{kmsg.DescribeConfigs, 1, 1, 4},
	{kmsg.AlterConfigs, 0, 0, 2},
	{kmsg.DescribeLogDirs, 1, 1, 4},
	{kmsg.CreatePartitions, 0, 0, 3},
	{kmsg.ElectLeaders, 0, 0, 2},
	{kmsg.IncrementalAlterConfigs, 0, 0, 1},
	{kmsg.AlterPartitionAssignments, 0, 0, 1},
	{kmsg.ListPartitionReassignments, 0, 0, 0},
	{kmsg.DescribeQuorum, 0, 0, 2},
	{kmsg.DescribeCluster, 0, 0, 2},
	{kmsg.DescribeProducers, 0, 0, 0},
	{kmsg.UnregisterBroker, 0, 0, 0},
	{kmsg.DescribeTopicPartitions, 0, 0, 0},
	{kmsg.AddRaftVoter, 0, 0, 1},
	{kmsg.RemoveRaftVoter, 0, 0, 0},
}

// APIs is every API that pawl serves, by key.
func APIs() []Range {
	all := apis
	return all[:]
}

// Served returns the versions of the API that pawl speaks.
func Served(key int16) (Range, bool) {
	for _, r := range apis {
		if r.Key.Int16() == key {
			return r, true
		}
	}
	return Range{}, false
}

// APIVersions answers an ApiVersions request of the given version: every API
// and its advertised range. Features are the caller's to add.
func APIVersions(version int16) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = version
	resp.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 0, len(apis))
	for _, r := range apis {
		resp.ApiKeys = append(resp.ApiKeys, advertise(r))
	}
	return resp
}

// unknownAPIVersions answers an ApiVersions request of a version that pawl does
// not know: in version 0, which every client reads, with nothing but the range
// in which to ask again.
//
// Source: KIP-511.
func unknownAPIVersions() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = codeUnsupportedVersion
	own, _ := Served(kmsg.ApiVersions.Int16())
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{advertise(own)}
	return resp
}

func advertise(r Range) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = r.Key.Int16(), r.Advertised, r.Max
	return k
}
