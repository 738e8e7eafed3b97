package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (a *App) topic() *cobra.Command {
	cmd := &cobra.Command{
		Use: "topic", Short: "Create, list, describe, change and delete topics",
		Example: `  pawl topic create orders --partitions 3
  pawl topic list`,
	}
	Within(cmd)
	a.ClientFlags(cmd)
	cmd.AddCommand(a.topicCreate(), a.topicList(), a.topicDescribe(), a.topicDelete(),
		a.topicAddPartitions(), a.topicConfig(), a.topicTrim())
	return cmd
}

// said is the JSON of a command that has nothing to tell but that it worked.
type said struct {
	Topic string `json:"topic"`
	Done  string `json:"done"`
}

func (a *App) topicCreate() *cobra.Command {
	var partitions int32
	var replication int16
	var configs []string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a topic", Args: Positional("NAME"),
		Example: "  pawl topic create orders --partitions 3 --replication 3 --config min.insync.replicas=2",
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := pairs("--config", configs)
			if err != nil {
				return err
			}
			values := map[string]*string{}
			for key, value := range set {
				values[key] = &value
			}
			return a.WithAdmin(cmd.Context(), args[0], func(ctx context.Context, admin *kadm.Client) error {
				made, err := admin.CreateTopic(ctx, partitions, replication, values, args[0])
				if err != nil {
					return Because(err, made.ErrMessage)
				}
				if values["min.insync.replicas"] != nil {
					a.warnInSync(ctx, admin, args[0])
				}
				result := struct {
					Topic       string `json:"topic"`
					ID          string `json:"id"`
					Partitions  int32  `json:"partitions"`
					Replication int16  `json:"replication"`
				}{args[0], idText(made.ID), made.NumPartitions, made.ReplicationFactor}
				return a.Print(result, func(w io.Writer) {
					fmt.Fprintf(w, "created topic %s: partitions %s, replication %s\n",
						args[0], known(int64(made.NumPartitions)), known(int64(made.ReplicationFactor)))
				})
			})
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "how many partitions (default the broker's num.partitions)")
	cmd.Flags().Int16Var(&replication, "replication", -1, "replicas of each (default the broker's default.replication.factor)")
	cmd.Flags().StringArrayVar(&configs, "config", nil, "configuration of the topic, key=value")
	return cmd
}

// known prints a number that a broker of an old version may not tell.
func known(n int64) string {
	if n < 0 {
		return "by default"
	}
	return strconv.FormatInt(n, 10)
}

// idText writes an id as Kafka's own tools do.
func idText(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Because adds the broker's own words to its error code.
func Because(err error, message string) error {
	if message == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, message)
}

func pairs(flag string, list []string) (map[string]string, error) {
	set := map[string]string{}
	for _, pair := range list {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, Usage("%s %s: want key=value", flag, pair)
		}
		set[key] = value
	}
	return set, nil
}

func (a *App) topicList() *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the topics", Args: Positional(),
		Example: "  pawl topic list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithAdmin(cmd.Context(), "", func(ctx context.Context, admin *kadm.Client) error {
				list := admin.ListTopics
				if internal {
					list = admin.ListTopicsWithInternal
				}
				topics, err := list(ctx)
				if err != nil {
					return err
				}
				type line struct {
					Topic       string `json:"topic"`
					Partitions  int    `json:"partitions"`
					Replication int    `json:"replication"`
				}
				lines := []line{}
				for _, t := range topics.Sorted() {
					lines = append(lines, line{t.Topic, len(t.Partitions), t.Partitions.NumReplicas()})
				}
				return a.Print(lines, func(w io.Writer) {
					Row(w, "TOPIC", "PARTITIONS", "REPLICATION")
					for _, l := range lines {
						Row(w, l.Topic, l.Partitions, l.Replication)
					}
				})
			})
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "list the brokers' own topics too")
	return cmd
}

// described is what topic describe prints.
type described struct {
	Topic      string               `json:"topic"`
	ID         string               `json:"id"`
	Partitions []describedPartition `json:"partitions"`
	Config     map[string]string    `json:"config,omitempty"` // what is set for the topic itself
	Warning    string               `json:"warning,omitempty"`
}

type describedPartition struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"` // -1: none
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Start       int64   `json:"start"` // -1: unknown
	End         int64   `json:"end"`   // -1: unknown
}

func (a *App) topicDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe NAME", Short: "Show a topic's partitions, offsets and configuration",
		Args: Positional("NAME"), Example: "  pawl topic describe orders",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithAdmin(cmd.Context(), args[0], func(ctx context.Context, admin *kadm.Client) error {
				topic, err := lookup(ctx, admin, args[0])
				if err != nil {
					return err
				}
				d := describe(ctx, admin, topic)
				return a.Print(d, func(w io.Writer) { d.write(w) })
			})
		},
	}
}

// lookup finds a topic, or says that it is unknown.
func lookup(ctx context.Context, admin *kadm.Client, name string) (kadm.TopicDetail, error) {
	topics, err := admin.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	topic := topics[name]
	return topic, topic.Err
}

// describe adds offsets and configuration to what metadata tells. A broker
// that does not tell them leaves them out: the rest is worth showing.
func describe(ctx context.Context, admin *kadm.Client, topic kadm.TopicDetail) described {
	d := described{Topic: topic.Topic, ID: idText(topic.ID)}
	starts, _ := admin.ListStartOffsets(ctx, topic.Topic)
	ends, _ := admin.ListEndOffsets(ctx, topic.Topic)
	offset := func(listed kadm.ListedOffsets, partition int32) int64 {
		if o, ok := listed.Lookup(topic.Topic, partition); ok && o.Err == nil {
			return o.Offset
		}
		return -1
	}
	for _, p := range topic.Partitions.Sorted() {
		d.Partitions = append(d.Partitions, describedPartition{
			p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR,
			offset(starts, p.Partition), offset(ends, p.Partition),
		})
	}
	if configs, err := admin.DescribeTopicConfigs(ctx, topic.Topic); err == nil {
		d.Config = map[string]string{}
		for _, resource := range configs {
			for _, c := range resource.Configs {
				if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
					d.Config[c.Key] = c.MaybeValue()
				}
				if c.Key == "min.insync.replicas" {
					least, _ := strconv.Atoi(c.MaybeValue())
					d.Warning = tooManyInSync(least, d.Partitions)
				}
			}
		}
	}
	return d
}

// tooManyInSync is a line about a min.insync.replicas that a topic has too few
// replicas for, or empty. Kafka lets it be as well: all of them must be in sync
// then, and when one is missing nothing is written with acks=all.
func tooManyInSync(least int, partitions []describedPartition) string {
	for _, p := range partitions {
		if n := len(p.Replicas); n < least {
			return fmt.Sprintf("min.insync.replicas is %d, but partition %d has %s: acks=all needs all of them, and no record is taken while one is missing; set it to at most %d, or add replicas",
				least, p.Partition, count(int64(n), "replica"), max(1, n-1))
		}
	}
	return ""
}

// warnInSync writes that line for a topic that was changed, if it can be known.
func (a *App) warnInSync(ctx context.Context, admin *kadm.Client, name string) {
	if topic, err := lookup(ctx, admin, name); err == nil {
		if text := describe(ctx, admin, topic).Warning; text != "" {
			fmt.Fprintln(a.Err, "warning: "+text)
		}
	}
}

func (d described) write(w io.Writer) {
	fmt.Fprintf(w, "topic %s, id %s, %s\n", d.Topic, d.ID, count(int64(len(d.Partitions)), "partition"))
	for _, key := range slices.Sorted(maps.Keys(d.Config)) {
		fmt.Fprintf(w, "config %s=%s\n", key, d.Config[key])
	}
	if d.Warning != "" {
		fmt.Fprintf(w, "warning: %s\n", d.Warning)
	}
	Row(w, "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END")
	for _, p := range d.Partitions {
		Row(w, p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.Start, p.End)
	}
}

func (a *App) topicDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a topic and its records",
		Args: Positional("NAME"), Example: "  pawl topic delete orders",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithAdmin(cmd.Context(), args[0], func(ctx context.Context, admin *kadm.Client) error {
				deleted, err := admin.DeleteTopic(ctx, args[0])
				if err != nil {
					return Because(err, deleted.ErrMessage)
				}
				return a.Print(said{args[0], "deleted"}, func(w io.Writer) {
					fmt.Fprintf(w, "deleted topic %s\n", args[0])
				})
			})
		},
	}
}

func (a *App) topicAddPartitions() *cobra.Command {
	return &cobra.Command{
		Use: "add-partitions NAME N", Short: "Give a topic N more partitions",
		Args: Positional("NAME", "N"), Example: "  pawl topic add-partitions orders 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			add, err := strconv.Atoi(args[1])
			if err != nil || add < 1 {
				return Usage("N is %q, want how many partitions to add", args[1])
			}
			return a.WithAdmin(cmd.Context(), args[0], func(ctx context.Context, admin *kadm.Client) error {
				responses, err := admin.CreatePartitions(ctx, add, args[0])
				if err != nil {
					return err
				}
				if r := responses[args[0]]; r.Err != nil {
					return Because(r.Err, r.ErrMessage)
				}
				return a.Print(said{args[0], "added " + count(int64(add), "partition")}, func(w io.Writer) {
					fmt.Fprintf(w, "added %s to topic %s\n", count(int64(add), "partition"), args[0])
				})
			})
		},
	}
}

func (a *App) topicConfig() *cobra.Command {
	var set, unset []string
	cmd := &cobra.Command{
		Use: "config NAME", Short: "Show or change a topic's configuration",
		Args: Positional("NAME"),
		Example: `  pawl topic config orders
  pawl topic config orders --set retention.ms=86400000 --unset cleanup.policy`,
		RunE: func(cmd *cobra.Command, args []string) error {
			alter, err := alterations(set, unset)
			if err != nil {
				return err
			}
			return a.WithAdmin(cmd.Context(), args[0], func(ctx context.Context, admin *kadm.Client) error {
				if len(alter) == 0 {
					return a.showConfig(ctx, admin, args[0])
				}
				responses, err := admin.AlterTopicConfigs(ctx, alter, args[0])
				if err != nil {
					return err
				}
				for _, r := range responses {
					if r.Err != nil {
						return Because(r.Err, r.ErrMessage)
					}
				}
				if slices.ContainsFunc(alter, func(c kadm.AlterConfig) bool { return c.Name == "min.insync.replicas" }) {
					a.warnInSync(ctx, admin, args[0])
				}
				return a.Print(said{args[0], "changed"}, func(w io.Writer) {
					fmt.Fprintf(w, "changed the configuration of topic %s\n", args[0])
				})
			})
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "set key=value")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "go back to the broker's default of a key")
	return cmd
}

func alterations(set, unset []string) (alter []kadm.AlterConfig, err error) {
	values, err := pairs("--set", set)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	for _, key := range unset {
		alter = append(alter, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	return alter, nil
}

func (a *App) showConfig(ctx context.Context, admin *kadm.Client, topic string) error {
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	type line struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	lines := []line{}
	for _, resource := range configs {
		if resource.Err != nil {
			return Because(resource.Err, resource.ErrMessage)
		}
		for _, c := range resource.Configs {
			lines = append(lines, line{c.Key, c.MaybeValue(), strings.ToLower(c.Source.String())})
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return strings.Compare(a.Key, b.Key) })
	return a.Print(lines, func(w io.Writer) {
		Row(w, "KEY", "VALUE", "FROM")
		for _, l := range lines {
			Row(w, l.Key, l.Value, l.Source)
		}
	})
}

func (a *App) topicTrim() *cobra.Command {
	var partition int32
	var before int64
	cmd := &cobra.Command{
		Use: "trim NAME --partition P --before OFFSET", Short: "Delete a partition's records before an offset",
		Args: Positional("NAME"), Example: "  pawl topic trim orders --partition 0 --before 1000",
		RunE: func(cmd *cobra.Command, args []string) error {
			if partition < 0 || before < 0 {
				return Usage("--partition and --before are needed, both 0 or more")
			}
			return a.WithAdmin(cmd.Context(), args[0], func(ctx context.Context, admin *kadm.Client) error {
				offsets := kadm.Offsets{}
				offsets.AddOffset(args[0], partition, before, -1)
				responses, err := admin.DeleteRecords(ctx, offsets)
				if err != nil {
					return err
				}
				r, ok := responses.Lookup(args[0], partition)
				if !ok {
					return errors.New("the broker says nothing of the partition")
				}
				if r.Err != nil {
					return fmt.Errorf("partition %d before offset %d: %w", partition, before, r.Err)
				}
				result := struct {
					Topic     string `json:"topic"`
					Partition int32  `json:"partition"`
					Start     int64  `json:"start"`
				}{args[0], partition, r.LowWatermark}
				return a.Print(result, func(w io.Writer) {
					fmt.Fprintf(w, "topic %s partition %d begins at offset %d\n", args[0], partition, r.LowWatermark)
				})
			})
		},
	}
	cmd.Flags().Int32Var(&partition, "partition", -1, "the partition")
	cmd.Flags().Int64Var(&before, "before", -1, "the first offset to keep")
	return cmd
}
