package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// firstPause is how long First waits between two attempts: little against the
// time that a broker takes to start.
const firstPause = 200 * time.Microsecond

// First returns once a broker that may still be starting has created a topic
// and acknowledged one record in it, acks=all.
func First(ctx context.Context, addr, topic string) error {
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = createVersion, 30_000
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 1, 1
	create.Topics = append(create.Topics, wanted)
	produce := produceRequest(Config{Topic: topic, Acks: -1}, encodeBatch(1, 100, time.Now().UnixMilli()), 0)

	if err := insist(ctx, addr, create, func(r kmsg.Response) int16 {
		code := r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
		if code == kerr.TopicAlreadyExists.Code {
			return 0
		}
		return code
	}); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	if err := insist(ctx, addr, produce, func(r kmsg.Response) int16 {
		return r.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	}); err != nil {
		return fmt.Errorf("produce to %s: %w", topic, err)
	}
	return nil
}

// insist asks until there is an answer without an error that may pass.
func insist(ctx context.Context, addr string, request kmsg.Request, code func(kmsg.Response) int16) error {
	for {
		response, err := askAny(ctx, []string{addr}, request)
		if err == nil {
			err = kerr.ErrorForCode(code(response))
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.ECONNREFUSED) && !kerr.IsRetriable(err):
			return err
		}
		timer := time.NewTimer(firstPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: last error: %w", ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// Reach returns once a broker that may still be starting knows of so many
// brokers, itself one of them, each of which takes connections.
func Reach(ctx context.Context, addr string, brokers int) error {
	request := kmsg.NewPtrMetadataRequest()
	request.Version, request.Topics = metadataVersion, []kmsg.MetadataRequestTopic{}
	for {
		response, err := askAny(ctx, []string{addr}, request)
		if err == nil {
			known := response.(*kmsg.MetadataResponse).Brokers
			if err = reachable(ctx, known); err == nil && len(known) >= brokers {
				return nil
			}
		}
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func reachable(ctx context.Context, brokers []kmsg.MetadataResponseBroker) error {
	for _, b := range brokers {
		var d net.Dialer
		sock, err := d.DialContext(ctx, "tcp", net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
		if err != nil {
			return err
		}
		sock.Close()
	}
	return nil
}
