package record

// Facts is what a broker needs to know of a batch's records to judge it by a
// topic's configuration.
type Facts struct {
	MinTimestamp Timestamp // of any record, or NoTimestamp
	MaxTimestamp Timestamp // of any record, or NoTimestamp
	NullKey      int32     // index of the first record without a key, or -1
}
