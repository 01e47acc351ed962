// Streams an answer over gRPC: deadline, retries that the server asks for, Ctrl-C.
//
//	generate PROMPT [ADDRESS]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weftv1 "generate/weft/v1"
)

const (
	deadline = time.Minute
	tries    = 5
)

// generate prints one answer. The delay is what the error's RetryInfo says; negative where a retry
// makes no sense.
func generate(ctx context.Context, client weftv1.TextGenerationClient,
	request *weftv1.GenerateRequest) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	stream, err := client.Generate(ctx, request)
	if err != nil {
		return -1, err
	}
	begun := false
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			name := "-"
			if head, _ := stream.Header(); len(head.Get("x-request-id")) > 0 {
				name = head.Get("x-request-id")[0]
			}
			fmt.Fprintf(os.Stderr, "[%s: %s (request %s)]\n", status.Code(err),
				status.Convert(err).Message(), name)
			for _, detail := range status.Convert(err).Details() {
				if info, found := detail.(*errdetails.RetryInfo); found && !begun {
					return info.RetryDelay.AsDuration(), err
				}
			}
			return -1, err
		}
		begun = true
		fmt.Print(event.GetOutput().GetText())
	}
}

func main() {
	address := "127.0.0.1:8081"
	if len(os.Args) > 2 {
		address = os.Args[2]
	}
	// Ctrl-C cancels the context, and that the request.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	connection, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer connection.Close()
	client := weftv1.NewTextGenerationClient(connection)
	temperature, maxTokens := float32(0), uint32(32)
	request := &weftv1.GenerateRequest{
		Prompt:   &weftv1.GenerateRequest_Text{Text: os.Args[1]},
		Sampling: &weftv1.SamplingParameters{Temperature: &temperature},
		Stopping: &weftv1.StoppingParameters{MaxTokens: &maxTokens},
	}
	for try := 1; ; try++ {
		delay, err := generate(ctx, client, request)
		if err == nil {
			fmt.Println()
			return
		}
		if delay < 0 || try == tries {
			os.Exit(1)
		}
		time.Sleep(delay)
	}
}
