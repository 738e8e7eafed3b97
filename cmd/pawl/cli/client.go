package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	defaultBroker  = "127.0.0.1:9092"
	defaultTimeout = 10 * time.Second
)

// errNotServed says that a broker lacks an API, or the version it would take.
var errNotServed = errors.New("this is not served by the broker")

// timeoutFlag knows whether it was given.
type timeoutFlag struct {
	time.Duration
	given bool
}

// ClientFlags gives a command, and those below it, the flags of a client.
func (a *App) ClientFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&a.brokers, "brokers", nil,
		"brokers to begin with, host:port,... (default "+defaultBroker+", or PAWL_BROKERS)")
	flags.DurationVar(&a.timeout.Duration, "timeout", defaultTimeout, "how long to wait for a broker")
	flags.BoolVar(&a.json, "json", false, "print JSON, for programs")
	flags.StringArrayVarP(&a.properties, "property", "X", nil,
		"client property key=value, of: "+strings.Join(propertyNames, ", "))
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.timeout.given = cmd.Flags().Changed("timeout")
		if a.timeout.Duration <= 0 {
			return Usage("--timeout %v: want a positive duration such as 10s", a.timeout.Duration)
		}
		a.brokers = a.seeds()
		return nil
	}
}

func (a *App) seeds() []string {
	if len(a.brokers) > 0 {
		return a.brokers
	}
	if list := a.Getenv("PAWL_BROKERS"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{defaultBroker}
}

// connect returns a client that has reached a broker.
func (a *App) connect(ctx context.Context, extra ...kgo.Opt) (*kgo.Client, error) {
	security, err := a.security()
	if err != nil {
		return nil, err
	}
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(a.brokers...),
		kgo.ClientID("pawl"),
		kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.DialTimeout(a.timeout.Duration),
		kgo.RetryTimeout(a.timeout.Duration),
	}, security...)
	client, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, Usage("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout.Duration)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, a.explain(err, "")
	}
	return client, nil
}

// WithAdmin runs f with a connection, and at most the timeout.
func (a *App) WithAdmin(ctx context.Context, topic string, f func(context.Context, *kadm.Client) error) error {
	return a.WithClient(ctx, topic, func(ctx context.Context, client *kgo.Client) error { return f(ctx, a.Admin(client)) })
}

// Admin is kadm's client, whose requests have a time limit of their own: a broker
// that cannot have them done in time says why before the client gives up.
func (a *App) Admin(client *kgo.Client) *kadm.Client {
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(a.LimitMillis())
	return admin
}

// LimitMillis is the time limit of a request, three quarters of the timeout.
func (a *App) LimitMillis() int32 { return int32(max(a.timeout.Milliseconds()*3/4, 1)) }

// WithClient is WithAdmin for requests that kadm lacks.
func (a *App) WithClient(ctx context.Context, topic string, f func(context.Context, *kgo.Client) error) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, a.timeout.Duration)
	defer cancel()
	return a.explain(f(ctx, client), topic)
}

// Watch runs f again and again, a while apart, until it says that it is done.
// Each time may take the timeout; ctx ends all.
func (a *App) Watch(ctx context.Context, topic string, f func(context.Context, *kadm.Client) (done bool, err error)) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for pause := watchFirst; ; pause = min(2*pause, watchLast) {
		once, cancel := context.WithTimeout(ctx, a.timeout.Duration)
		done, err := f(once, a.Admin(client))
		cancel()
		if err != nil || done {
			return a.explain(err, topic)
		}
		select {
		case <-ctx.Done():
			return a.explain(ctx.Err(), topic)
		case <-time.After(pause):
		}
	}
}

// watchFirst and watchLast are how far apart Watch looks, at first and at last.
const (
	watchFirst = 50 * time.Millisecond
	watchLast  = time.Second
)

// Progress writes how far something is to a terminal, over what it wrote before;
// an empty text erases it. To anything else it writes nothing.
func (a *App) Progress(text string) {
	if isTerminal(a.Err) {
		fmt.Fprintf(a.Err, "\r\033[K%s", text)
	}
}

// explain says where an error happened and what to do about it.
func (a *App) explain(err error, topic string) error {
	where := strings.Join(a.brokers, ",")
	var dial *net.OpError
	var broker *kerr.Error
	switch {
	case err == nil || errors.As(err, &usageError{}):
		return err
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("topic %s: unknown to the brokers at %s: create it with: pawl topic create %s", topic, where, topic)
	case errors.Is(err, kerr.TopicAlreadyExists):
		return fmt.Errorf("topic %s: exists already at %s: see it with: pawl topic describe %s", topic, where, topic)
	case Unserved(err):
		return fmt.Errorf("%s%w at %s: use a broker of a later version", prefix(topic), errNotServed, where)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %v (%w): try again, or give a longer --timeout", where, a.timeout.Duration, err)
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted: %w", err)
	case errors.As(err, &broker):
		return fmt.Errorf("%sthe broker at %s answers %w: %s", prefix(topic), where, err, advice(broker))
	case errors.As(err, &dial) && dial.Op != "dial" && dial.Timeout():
		return fmt.Errorf("no answer from %s (%w): try again, give a longer --timeout, or look at pawl cluster health", where, err)
	case errors.As(err, &dial), strings.Contains(err.Error(), "dial"):
		return fmt.Errorf("no broker at %s (%w): start one with pawl serve, or name one with --brokers or PAWL_BROKERS", where, err)
	}
	return fmt.Errorf("%s%w (brokers %s)", prefix(topic), err, where)
}

// Unserved reports whether err says that a broker lacks an API, or the version of
// it that is needed.
func Unserved(err error) bool {
	return err != nil && (errors.Is(err, kerr.UnsupportedVersion) || strings.Contains(err.Error(), "request key is unknown") ||
		strings.Contains(err.Error(), "broker is too old"))
}

func prefix(topic string) string {
	if topic == "" {
		return ""
	}
	return "topic " + topic + ": "
}

func advice(err *kerr.Error) string {
	if err.Retriable {
		return "try again"
	}
	return "change what you ask for"
}

// propertyNames are the security properties, as Kafka's C and Java clients
// spell them.
var propertyNames = []string{
	"security.protocol", "sasl.mechanism", "sasl.username", "sasl.password",
	"ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
}

// security turns -X properties into client options.
func (a *App) security() (opts []kgo.Opt, err error) {
	given := map[string]string{"security.protocol": "PLAINTEXT", "sasl.mechanism": "PLAIN"}
	for _, property := range a.properties {
		key, value, ok := strings.Cut(property, "=")
		key = strings.Replace(key, "sasl.mechanisms", "sasl.mechanism", 1)
		if !ok || !slices.Contains(propertyNames, key) {
			return nil, Usage("-X %s: want key=value with a key of %s", property, strings.Join(propertyNames, ", "))
		}
		given[key] = value
	}
	protocol := strings.ToUpper(given["security.protocol"])
	switch protocol {
	case "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
	default:
		return nil, Usage("-X security.protocol=%s: want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol)
	}
	if strings.HasSuffix(protocol, "SSL") {
		config, err := tlsConfig(given)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	if !strings.HasPrefix(protocol, "SASL") {
		return opts, nil
	}
	user, password := given["sasl.username"], given["sasl.password"]
	switch mechanism := strings.ToUpper(given["sasl.mechanism"]); mechanism {
	case "PLAIN":
		return append(opts, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())), nil
	case "SCRAM-SHA-256":
		return append(opts, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism())), nil
	case "SCRAM-SHA-512":
		return append(opts, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism())), nil
	default:
		return nil, Usage("-X sasl.mechanism=%s: want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", mechanism)
	}
}

func tlsConfig(given map[string]string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := given["ssl.ca.location"]; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("ssl.ca.location: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ssl.ca.location: no PEM certificate in %s", file)
		}
	}
	if file := given["ssl.certificate.location"]; file != "" {
		pair, err := tls.LoadX509KeyPair(file, given["ssl.key.location"])
		if err != nil {
			return nil, fmt.Errorf("ssl.certificate.location: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
