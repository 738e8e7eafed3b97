package session

import "github.com/pawlbroker/pawl/broker/metadata"

// Followers tells f of the nodes that fetch the partition, and of what each asked
// last. A node may come twice, if it has begun another session.
func (w *Watch) Followers(f func(node metadata.NodeID, ask *Ask)) {
	for e := w.first; e != nil; e = e.after {
		if e.session.peer != noPeer {
			f(e.session.peer, &e.Ask)
		}
	}
}
