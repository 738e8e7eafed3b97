package client

import (
	"errors"
	"maps"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
)

// What an Actor does to topics, and not to what is in them. It asks one node or
// another, so that a history knows whose answer it was.

const topicResource = kmsg.ConfigResourceTypeTopic

// onTopic makes the one attempt at an operation on a topic.
func (a *Actor) onTopic(op workloads.Op) {
	switch op := op.(type) {
	case workloads.CreateTopic:
		topic := a.cfg.Topic
		topic.Name = op.Topic
		topic.Configs = maps.Clone(topic.Configs)
		topic.Configs[workloads.TokenConfig] = strconv.FormatUint(uint64(op.Token), 10)
		a.askNode(topic.request(), func(resp kmsg.Response) (int16, bool) {
			r := resp.(*kmsg.CreateTopicsResponse)
			if len(r.Topics) != 1 {
				return 0, false
			}
			return r.Topics[0].ErrorCode, true
		}, codeTopicExists, true)
	case workloads.DeleteTopic:
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = &op.Topic
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 5000
		req.Topics = append(req.Topics, topic)
		req.TopicNames = []string{op.Topic} // before version 6
		a.askNode(req, func(resp kmsg.Response) (int16, bool) {
			r := resp.(*kmsg.DeleteTopicsResponse)
			if len(r.Topics) != 1 {
				return 0, false
			}
			return r.Topics[0].ErrorCode, true
		}, codeUnknownTopic, false)
	case workloads.SetConfig:
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = workloads.TokenConfig, kmsg.StringPtr(strconv.FormatUint(uint64(op.Token), 10))
		resource := kmsg.NewIncrementalAlterConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = topicResource, op.Topic
		resource.Configs = append(resource.Configs, config)
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Resources = append(req.Resources, resource)
		a.askNode(req, func(resp kmsg.Response) (int16, bool) {
			r := resp.(*kmsg.IncrementalAlterConfigsResponse)
			if len(r.Resources) != 1 {
				return 0, false
			}
			return r.Resources[0].ErrorCode, true
		}, codeUnknownTopic, false)
	case workloads.GetConfig:
		a.getConfig(op)
	}
}

// askNode asks a node for a change. code is the error that says that nothing was
// changed, because the topic is there, or is not.
func (a *Actor) askNode(req kmsg.Request, outcome func(kmsg.Response) (code int16, ok bool), code int16, there bool) {
	node := a.own.IntN(a.cluster.Nodes())
	a.cluster.AskNode(node, req, func(resp kmsg.Response, err error) {
		switch {
		case a.op == nil: // given up
			return
		case errors.Is(err, ErrNotSent):
			a.failed(err.Error())
			return
		case err != nil:
			a.finish(workloads.Result{Outcome: history.Unknown, Note: err.Error()})
			return
		}
		got, ok := outcome(resp)
		if !ok {
			a.cluster.broken("an answer for other topics than asked")
		}
		switch {
		case got == 0:
			a.finish(workloads.Result{Outcome: history.OK, There: !there, Via: a.via(node)})
		case got == code:
			a.finish(workloads.Result{Outcome: history.OK, There: there, Via: a.via(node)})
		case got == codeTimedOut || got == codeUnknownServer:
			a.finish(workloads.Result{Outcome: history.Unknown, Note: codeNote(got)})
		default:
			a.failed(codeNote(got))
		}
	})
}

// via is how a history names a node, unless it is the whole cluster.
func (a *Actor) via(node int) int32 {
	if a.cluster.Nodes() == 1 {
		return history.AsOfNow
	}
	return int32(node)
}

func (a *Actor) getConfig(op workloads.GetConfig) {
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = topicResource, op.Topic
	resource.ConfigNames = []string{workloads.TokenConfig}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = append(req.Resources, resource)
	node := a.own.IntN(a.cluster.Nodes())
	a.cluster.AskNode(node, req, func(resp kmsg.Response, err error) {
		switch {
		case a.op == nil: // given up
			return
		case err != nil:
			a.failed(err.Error())
			return
		}
		r := resp.(*kmsg.DescribeConfigsResponse)
		if len(r.Resources) != 1 {
			a.cluster.broken("DescribeConfigs answers for other topics than asked")
			a.failed("wrong topics")
			return
		}
		result := workloads.Result{Outcome: history.OK, Via: a.via(node)}
		if op.Now {
			result.Via = history.AsOfNow
		}
		switch got := &r.Resources[0]; {
		case got.ErrorCode == codeUnknownTopic:
			a.finish(result)
		case got.ErrorCode != 0:
			a.failed(codeNote(got.ErrorCode))
		case len(got.Configs) != 1 || got.Configs[0].Value == nil:
			a.cluster.broken("DescribeConfigs leaves out what was asked for")
			a.failed("no value")
		default:
			token, err := strconv.ParseUint(*got.Configs[0].Value, 10, 64)
			if err != nil {
				a.cluster.broken("DescribeConfigs: " + err.Error())
			}
			result.Token = history.Value(token)
			a.finish(result)
		}
	})
}
