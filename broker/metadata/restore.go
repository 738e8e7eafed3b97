package metadata

// Restore returns the image that a snapshot's records come to, at offset, and
// what is different in it from m, whose place it takes. Its cost grows with
// both images.
func Restore(m Image, offset Offset, records []Record) (Image, Delta, error) {
	next, _, err := Apply(Image{}, offset, records)
	if err != nil {
		return Image{}, Delta{}, err
	}
	changed := records
	for b := range m.Brokers() {
		if _, ok := next.Broker(b.Node); !ok {
			changed = append(changed, &UnregisterBroker{b.Node})
		}
	}
	for t := range m.Topics() {
		if after, ok := next.TopicByID(t.ID); !ok {
			changed = append(changed, &RemoveTopic{t.ID})
		} else if len(after.Configs) == 0 {
			changed = append(changed, &ConfigureTopic{Topic: t.ID})
		}
	}
	return next, difference(m, next, changed), nil
}
