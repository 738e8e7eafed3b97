package metadata

import "errors"

// Why a change to the cluster is refused, or a question about it has no
// answer. Kafka's code for each is in broker/wire.
var (
	// ErrUnknownTopic says there is no topic, or no partition, of that name.
	ErrUnknownTopic = errors.New("unknown topic or partition")
	// ErrUnknownTopicID says there is no topic of that id.
	ErrUnknownTopicID = errors.New("unknown topic id")
	// ErrTopicExists says the name is taken.
	ErrTopicExists = errors.New("topic already exists")
	// ErrInvalidTopic says the name is not one a topic may have.
	ErrInvalidTopic = errors.New("invalid topic name")
	// ErrInvalidPartitions says the number of partitions is out of range.
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	// ErrInvalidReplicationFactor says the number of replicas is out of range,
	// or larger than the cluster.
	ErrInvalidReplicationFactor = errors.New("invalid replication factor")
	// ErrInvalidReplicaAssignment says replicas named by hand do not fit.
	ErrInvalidReplicaAssignment = errors.New("invalid replica assignment")
	// ErrInvalidConfig says a configuration does not exist or may not have that
	// value.
	ErrInvalidConfig = errors.New("invalid configuration")
	// ErrInvalidRequest says the request contradicts itself.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrPolicyViolation says the change is more than the cluster takes at
	// once.
	ErrPolicyViolation = errors.New("policy violation")
	// ErrTopicDeletionDisabled says delete.topic.enable is false.
	ErrTopicDeletionDisabled = errors.New("topic deletion is disabled")
	// ErrSecurityDisabled says there is no authorizer.
	ErrSecurityDisabled = errors.New("security is disabled")
	// ErrNotController says another node decides about the cluster, or none
	// does at the moment.
	ErrNotController = errors.New("not the controller")
	// ErrDuplicateBroker says another broker is registered under that id.
	ErrDuplicateBroker = errors.New("duplicate broker registration")
	// ErrLeaderNotAvailable says the partition has no leader.
	ErrLeaderNotAvailable = errors.New("leader not available")
	// ErrReplicaNotAvailable says some replicas are on brokers that cannot be
	// reached.
	ErrReplicaNotAvailable = errors.New("replica not available")
	// ErrElectionNotNeeded says the partition has the leader it should have.
	ErrElectionNotNeeded = errors.New("election not needed")
	// ErrPreferredLeaderNotAvailable says the first replica cannot lead: it is
	// not in sync, or its broker is fenced or stopping.
	ErrPreferredLeaderNotAvailable = errors.New("preferred leader not available")
	// ErrEligibleLeadersNotAvailable says no replica can lead.
	ErrEligibleLeadersNotAvailable = errors.New("eligible leaders not available")
	// ErrNoReassignmentInProgress says there is nothing to cancel.
	ErrNoReassignmentInProgress = errors.New("no reassignment in progress")
	// ErrBrokerNotRegistered says there is no broker of that id.
	ErrBrokerNotRegistered = errors.New("broker not registered")
	// ErrStaleBrokerEpoch says a request is of a broker that is not registered,
	// or has registered again since (KIP-380).
	ErrStaleBrokerEpoch = errors.New("stale broker epoch")
	// ErrInvalidRegistration says a broker cannot be reached as it says.
	ErrInvalidRegistration = errors.New("invalid broker registration")
	// ErrFencedLeaderEpoch says the partition has had an election since.
	ErrFencedLeaderEpoch = errors.New("fenced leader epoch")
	// ErrNotAttempted is what ErrIneligibleReplica was before there was a code
	// for it. Kafka: OPERATION_NOT_ATTEMPTED.
	ErrNotAttempted = errors.New("operation not attempted")
	// ErrNewLeaderElected says what was asked for is done, and another leads now.
	ErrNewLeaderElected = errors.New("new leader elected")
	// ErrInconsistentClusterID says the request is for another cluster.
	ErrInconsistentClusterID = errors.New("inconsistent cluster id")
	// ErrNotQuorumLeader says only the leader of the metadata quorum knows.
	ErrNotQuorumLeader = errors.New("not the leader of the metadata quorum")
	// ErrDuplicateVoter says the node is a voter of the metadata quorum already.
	ErrDuplicateVoter = errors.New("duplicate voter")
	// ErrVoterNotFound says there is no such voter.
	ErrVoterNotFound = errors.New("voter not found")
	// ErrInvalidUpdateVersion says that a change of a partition was proposed on a
	// state that is not the latest.
	ErrInvalidUpdateVersion = errors.New("invalid update version")
	// ErrIneligibleReplica says a replica cannot be in sync: its broker is fenced,
	// stopping, or registered anew (KIP-841, KIP-903).
	ErrIneligibleReplica = errors.New("ineligible replica")
	// ErrUnsupportedEndpoint says a node answers only for brokers or only for
	// controllers. Kafka: UNSUPPORTED_ENDPOINT_TYPE.
	ErrUnsupportedEndpoint = errors.New("unsupported endpoint type")
	// ErrMismatchedEndpoint says the question is one for controllers, and was
	// put to a broker.
	ErrMismatchedEndpoint = errors.New("mismatched endpoint type")

	// ErrMalformed says bytes are not the encoding of records.
	ErrMalformed = errors.New("malformed metadata records")
	// ErrInapplicable says a record contradicts the image it is applied to. No
	// record that the controller decided is refused.
	ErrInapplicable = errors.New("metadata record cannot be applied")
)
