package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// Markdown is docs/configuration.md: every key there is, from the tables that
// the program itself reads.
func Markdown() string {
	var out strings.Builder
	out.WriteString(`# Configuration

` + "`pawl serve`" + ` takes its configuration from five places; the earlier counts before the later:

1. flags, such as ` + "`--listen 127.0.0.1:9092`" + `;
2. ` + "`--set key=value`" + `;
3. the environment: ` + "`PAWL_FOO_BAR`" + ` or ` + "`KAFKA_FOO_BAR`" + ` sets ` + "`foo.bar`" + ` (a double underscore is an underscore, a triple
   one a dash; ` + "`PAWL_MEMORY_MAX`" + ` sets ` + "`pawl.memory.max`" + `), ` + "`PAWL_`" + ` before ` + "`KAFKA_`" + `;
4. a ` + "`server.properties`" + ` file, named by ` + "`--config`" + `;
5. the defaults below.

Names, types and defaults are Kafka's; those that begin with ` + "`pawl.`" + ` are our own. An unknown key is an error. Bytes may be given
as ` + "`64MiB`" + ` where the type is long.

This page is made from the tables in the program: change those, then run
` + "`go test ./cmd/pawl/config -rewrite`" + `.

## What has a meaning here

| key | flag | type | default | meaning |
|---|---|---|---|---|
`)
	flags := map[string]string{}
	for _, k := range flagKeys {
		flags[k.key] = "`--" + k.flag + "`"
	}
	var inert []*metadata.ConfigDef
	for _, d := range all() {
		if d.Inert {
			inert = append(inert, d)
			continue
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", d.Name, flags[d.Name], typeName(d.Type), defaultOf(d), d.Doc)
	}
	out.WriteString(`
## What is accepted and changes nothing

Kafka has these, and files that set them need not be changed: one warning lists them. Their values are checked.

| key | type | Kafka's meaning, or why there is none here |
|---|---|---|
`)
	for _, d := range inert {
		if d.Name == "authorizer.class.name" {
			continue // refused
		}
		if to, ok := aliases[d.Name]; ok {
			fmt.Fprintf(&out, "| `%s` | %s | The same as `%s`. |\n", d.Name, typeName(d.Type), to)
			continue
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", d.Name, typeName(d.Type), d.Doc)
	}
	out.WriteString("\nSo are all keys that begin with ")
	for i, f := range families {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString("`" + f + "`")
	}
	out.WriteString(`.

## What is refused

To ignore these would promise what is not kept: a listener that speaks anything but ` + "`PLAINTEXT`" + `, an ` + "`authorizer.class.name`" + `,
more than one directory in ` + "`log.dirs`" + `, more than one listener for clients.
`)
	return out.String()
}

// all returns every key once, by name.
func all() []*metadata.ConfigDef {
	keys := slices.Clone(hostKeys)
	for _, d := range metadata.BrokerConfigs() {
		if own, _ := find(d.Name); own == d {
			keys = append(keys, d)
		}
	}
	slices.SortFunc(keys, func(a, b *metadata.ConfigDef) int { return strings.Compare(a.Name, b.Name) })
	return keys
}

func typeName(t metadata.ConfigType) string {
	names := map[metadata.ConfigType]string{
		metadata.BooleanConfig: "boolean", metadata.StringConfig: "string", metadata.IntConfig: "int",
		metadata.ShortConfig: "short", metadata.LongConfig: "long", metadata.DoubleConfig: "double",
		metadata.ListConfig: "list", metadata.ClassConfig: "class", metadata.SecretConfig: "password",
	}
	return names[t]
}

func defaultOf(d *metadata.ConfigDef) string {
	if d.Default == "" {
		return ""
	}
	return "`" + d.Default + "`"
}
