package controller

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// DescribeConfigs
//
// Behavior:
//   - Topics and brokers have configurations; other kinds of resources are
//     INVALID_REQUEST.
//   - A broker knows its own configuration only. An empty broker name asks for
//     what was set for all brokers while they ran (KIP-226).
//   - What was set for a topic comes before what was set for the broker while it
//     ran, before what was set so for all brokers, before what the broker was
//     started with, before the default. Synonyms are all of these there are.
//   - A list of names is a filter; names that do not exist are left out. Null
//     and the empty list ask for all.
//   - Secrets have no value.
//
// Versions:
//   - v1 adds source and synonyms (KIP-226), v3 type and documentation
//     (KIP-569).

// DescribeConfigs answers a DescribeConfigs request.
func (v *View) DescribeConfigs(req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = req.Version
	for i := range req.Resources {
		r := &req.Resources[i]
		values, err := v.configs(r.ResourceType, r.ResourceName)
		dr := kmsg.NewDescribeConfigsResponseResource()
		dr.ResourceType, dr.ResourceName = r.ResourceType, r.ResourceName
		dr.ErrorCode, dr.ErrorMessage = wire.Code(err), wire.Message(err)
		for _, value := range values {
			if len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, value.Def.Name) {
				dr.Configs = append(dr.Configs, describe(&value, req))
			}
		}
		resp.Resources = append(resp.Resources, dr)
	}
	return resp
}

func (v *View) configs(kind kmsg.ConfigResourceType, name string) ([]metadata.ConfigValue, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		t, err := v.findTopic(metadataKey{byName: true, name: name})
		if err != nil {
			return nil, err
		}
		return metadata.DescribeTopicConfigs(t.Configs, v.Config.On(v.Image, v.Self)), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return v.Config.On(v.Image, metadata.EveryBroker).DescribeEvery(), nil
		}
		if id, err := strconv.ParseInt(name, 10, 32); err != nil || metadata.NodeID(id) != v.Self {
			return nil, fmt.Errorf("%w: this is broker %d, which does not know the configuration of %q", metadata.ErrInvalidRequest, v.Self, name)
		}
		return v.Config.On(v.Image, v.Self).Describe(), nil
	}
	return nil, fmt.Errorf("%w: resources of type %d have no configuration", metadata.ErrInvalidRequest, kind)
}

func describe(v *metadata.ConfigValue, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name = v.Def.Name
	c.Value = shown(v.Value, v.Null || v.Def.Sensitive)
	c.ReadOnly = v.Def.ReadOnly
	c.IsDefault = v.Source == metadata.FromDefault
	c.Source = kmsg.ConfigSource(v.Source)
	c.IsSensitive = v.Def.Sensitive
	c.ConfigType = kmsg.ConfigType(v.Def.Type)
	if req.IncludeDocumentation {
		c.Documentation = &v.Def.Doc
	}
	if req.IncludeSynonyms {
		for _, s := range v.Synonyms {
			cs := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			cs.Name, cs.Source = s.Name, kmsg.ConfigSource(s.Source)
			cs.Value = shown(s.Value, s.Null || v.Def.Sensitive)
			c.ConfigSynonyms = append(c.ConfigSynonyms, cs)
		}
	}
	return c
}

func shown(value string, hidden bool) *string {
	if hidden {
		return nil
	}
	return &value
}
