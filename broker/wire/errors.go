package wire

import (
	"errors"
	"fmt"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/producer"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
)

// Why a node refuses a request, where no package below has the reason for its
// own.
var (
	// ErrUnknown is the reason for what ought not to happen.
	ErrUnknown = errors.New("unexpected error")
	// ErrInvalidFetchSize says a fetch asks for a negative number of bytes.
	ErrInvalidFetchSize = errors.New("invalid fetch size")
	// ErrTimedOut says the request's own time limit passed.
	ErrTimedOut = errors.New("request timed out")
	// ErrMessageTooLarge says a batch is above max.message.bytes.
	ErrMessageTooLarge = errors.New("record batch too large")
	// ErrNotEnoughReplicas says the in-sync replicas are fewer than
	// min.insync.replicas; nothing was written.
	ErrNotEnoughReplicas = errors.New("not enough in-sync replicas")
	// ErrNotEnoughReplicasAfter is the same found after the write, which may
	// still become committed.
	ErrNotEnoughReplicasAfter = errors.New("not enough in-sync replicas after the append")
	// ErrInvalidRequiredAcks says acks is not -1, 0 or 1.
	ErrInvalidRequiredAcks = errors.New("invalid required acks")
	// ErrInvalidTimestamp says a record's time is too far from the broker's.
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrUnsupportedVersion says the API, or something in the request, is not
	// known in that version.
	ErrUnsupportedVersion = errors.New("unsupported version")
	// ErrUnsupportedFormat says the log's message format cannot serve the
	// request.
	ErrUnsupportedFormat = errors.New("unsupported for this message format")
	// ErrDuplicateSequence says a batch was written before, too long ago to say
	// where.
	ErrDuplicateSequence = errors.New("duplicate sequence number")
	// ErrInvalidTxnState says a transactional request does not fit its
	// transaction.
	ErrInvalidTxnState = errors.New("invalid transaction state")
	// ErrUnknownProducer says nothing is known of a producer id.
	ErrUnknownProducer = errors.New("unknown producer id")
	// ErrFetchSessionNotFound says there is no such fetch session.
	ErrFetchSessionNotFound = errors.New("fetch session id not found")
	// ErrInvalidSessionEpoch says a fetch session is at another epoch.
	ErrInvalidSessionEpoch = errors.New("invalid fetch session epoch")
	// ErrSessionTopicID says a fetch session has topic ids and the request does
	// not, or the other way round.
	ErrSessionTopicID = errors.New("fetch session and request differ in whether they have topic ids")
	// ErrUnsupportedCompression says the codec is not allowed in that version.
	ErrUnsupportedCompression = errors.New("unsupported compression type")
	// ErrOffsetNotAvailable says a new leader's high watermark has not reached
	// the log end it was elected with.
	ErrOffsetNotAvailable = errors.New("offset not available")
	// ErrInvalidRecord says a record or a batch may not be written.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrCoordinatorLoading says that whoever coordinates is not ready: the client
	// is to ask again.
	ErrCoordinatorLoading = errors.New("coordinator load in progress")
	// ErrResourceNotFound says a request names a resource that is not there.
	ErrResourceNotFound = errors.New("resource not found")
	// ErrStorage says another broker's disk fails it.
	ErrStorage = errors.New("storage error")
	// ErrInconsistentTopicID says a topic's name and id do not belong together.
	ErrInconsistentTopicID = errors.New("inconsistent topic id")
)

// CodeNone is the code of success.
const CodeNone int16 = 0

const (
	codeUnknown                 int16 = -1
	codeStorage                 int16 = 56
	codeUnsupportedVersion      int16 = 35
	codeCoordinatorNotAvailable int16 = 15
)

// codes is the only place where an error becomes a number of Kafka's, or the
// other way round. The first entry that the error matches counts, so what wraps
// comes before what is wrapped. The first entry of a code is what the code means
// when another broker says it.
var codes = [...]struct {
	err  error
	code int16
}{
	{storage.ErrOutOfRange, 1},
	{ErrInvalidRecord, 87},
	{record.ErrInvalid, 87},
	{record.ErrCorrupt, 2},
	{metadata.ErrUnknownTopic, 3},
	{ErrInvalidFetchSize, 4},
	{metadata.ErrLeaderNotAvailable, 5},
	{replica.ErrNotLeader, 6},
	{metadata.ErrNotQuorumLeader, 6},
	{storage.ErrGone, 6}, // the client asks again, who leads and then for the records
	{ErrTimedOut, 7},
	{metadata.ErrReplicaNotAvailable, 9},
	{ErrMessageTooLarge, 10},
	{codec.ErrTooLarge, 10},
	{ErrCoordinatorLoading, 14},
	{metadata.ErrInvalidTopic, 17},
	{ErrNotEnoughReplicas, 19},
	{ErrNotEnoughReplicasAfter, 20},
	{ErrInvalidRequiredAcks, 21},
	{ErrInvalidTimestamp, 32},
	{codec.ErrTimestampType, 32},
	{ErrUnsupportedVersion, codeUnsupportedVersion},
	{metadata.ErrTopicExists, 36},
	{metadata.ErrInvalidPartitions, 37},
	{metadata.ErrInvalidReplicationFactor, 38},
	{metadata.ErrInvalidReplicaAssignment, 39},
	{metadata.ErrInvalidConfig, 40},
	{metadata.ErrNotController, 41},
	{metadata.ErrInvalidRequest, 42},
	{ErrUnsupportedFormat, 43},
	{metadata.ErrPolicyViolation, 44},
	{producer.ErrOutOfOrder, 45},
	{ErrDuplicateSequence, 46},
	{producer.ErrFenced, 47},
	{ErrInvalidTxnState, 48},
	{metadata.ErrSecurityDisabled, 54},
	{metadata.ErrNotAttempted, 55},
	{ErrStorage, codeStorage},
	{storage.ErrNoSpace, codeStorage},
	{storage.ErrNotNext, codeStorage},
	{storage.ErrUnknownLog, codeStorage},
	{ErrUnknownProducer, 59},
	{ErrFetchSessionNotFound, 70},
	{ErrInvalidSessionEpoch, 71},
	{metadata.ErrTopicDeletionDisabled, 73},
	{replica.ErrFencedEpoch, 74},
	{metadata.ErrFencedLeaderEpoch, 74},
	{replica.ErrUnknownEpoch, 75},
	{ErrUnsupportedCompression, 76},
	{codec.ErrUnknownCodec, 76},
	{metadata.ErrStaleBrokerEpoch, 77},
	{ErrOffsetNotAvailable, 78},
	{metadata.ErrPreferredLeaderNotAvailable, 80},
	{metadata.ErrEligibleLeadersNotAvailable, 83},
	{metadata.ErrElectionNotNeeded, 84},
	{metadata.ErrNoReassignmentInProgress, 85},
	{codec.ErrControl, 87},
	{codec.ErrProducer, 87},
	{record.ErrMagic, 87}, // what Kafka says of old formats in Produce 3 and later
	{ErrResourceNotFound, 91},
	{metadata.ErrInvalidUpdateVersion, 95},
	{metadata.ErrUnknownTopicID, 100},
	{metadata.ErrDuplicateBroker, 101},
	{metadata.ErrBrokerNotRegistered, 102},
	{ErrInconsistentTopicID, 103},
	{metadata.ErrInconsistentClusterID, 104},
	{ErrSessionTopicID, 106},
	{metadata.ErrIneligibleReplica, 107},
	{metadata.ErrNewLeaderElected, 108},
	{metadata.ErrMismatchedEndpoint, 114},
	{metadata.ErrUnsupportedEndpoint, 115},
	{metadata.ErrInvalidRegistration, 119},
	{metadata.ErrDuplicateVoter, 126},
	{metadata.ErrVoterNotFound, 127},
	{ErrUnknown, codeUnknown},
}

// Code is Kafka's number for err: 0 for nil, and UNKNOWN_SERVER_ERROR (-1) for
// an error that has no number.
func Code(err error) int16 {
	if err == nil {
		return CodeNone
	}
	for i := range codes {
		if errors.Is(err, codes[i].err) {
			return codes[i].code
		}
	}
	var damage *storage.DamageError
	if errors.As(err, &damage) {
		return codeStorage
	}
	return codeUnknown
}

// ErrorOf is what a code of another broker means: nil for 0, and ErrUnknown,
// which tells the number, for a code that pawl never sends.
func ErrorOf(code int16) error {
	if code == CodeNone {
		return nil
	}
	for i := range codes {
		if codes[i].code == code {
			return codes[i].err
		}
	}
	return fmt.Errorf("%w: code %d", ErrUnknown, code)
}

// Message is the text that goes with Code(err) where a response has room for
// one: what happened in this case, not what the code means in general. It is
// nil for nil.
func Message(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}
