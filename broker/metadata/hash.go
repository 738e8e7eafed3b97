package metadata

// Hash is a number that two images share if they hold the same, whatever way
// they came about. It depends on nothing but the contents: not on the offset,
// the machine or the run. It is kept up to date by Apply and costs nothing to
// ask for.
//
// It is the sum of the hashes of the records that make the image, so that a
// change costs the size of the change. That is enough to notice images that
// grew apart by mistake; it does not withstand malice.
func (m Image) Hash() uint64 { return m.sum }

func (m *Image) add(r Record)    { m.sum += hash(r) }
func (m *Image) remove(r Record) { m.sum -= hash(r) }

func (t *Topic) record() *AddTopic { return &AddTopic{t.ID, t.Name, t.Configs} }

// hash is FNV-1a over the encoding of a record, with its bits mixed so that
// sums of similar records do not cancel out.
func hash(r Record) uint64 {
	h := uint64(14695981039346656037)
	var buf [256]byte
	for _, c := range r.encode(append(buf[:0], byte(r.kind()))) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	return h
}
