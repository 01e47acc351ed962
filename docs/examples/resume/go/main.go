// Streams a completion and goes on elsewhere when its server dies.
//
//	go run main.go PROMPT URL [URL...]
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const patience = time.Minute

// What is given back to go on: the members of the first event's `resume`, and the ids that came.
type resume struct {
	Seed        uint64   `json:"seed"`
	Fingerprint string   `json:"fingerprint"`
	OutputIDs   []uint32 `json:"output_ids"`
}

type request struct {
	Prompt         string  `json:"prompt"`
	Stream         bool    `json:"stream"`
	ReturnTokenIDs bool    `json:"return_token_ids"`
	MaxTokens      int     `json:"max_tokens"`
	Temperature    float64 `json:"temperature"`
	IgnoreEOS      bool    `json:"ignore_eos"`
	Seed           uint64  `json:"seed"`
	Resume         *resume `json:"resume,omitempty"`
}

type event struct {
	Choices []struct {
		Text         string   `json:"text"`
		TokenIDs     []uint32 `json:"token_ids"`
		FinishReason *string  `json:"finish_reason"`
	} `json:"choices"`
	Resume *resume         `json:"resume"`
	Error  json.RawMessage `json:"error"`
}

// An answer that no other server would give another word to.
var errRefused = errors.New("refused")

// read prints what one server sends. Nil when the answer is complete; `asked` is changed to resume
// what came.
func read(url string, asked *request) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	answer, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		err := fmt.Errorf("%s: %s", answer.Status, text)
		if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500 {
			return err
		}
		return errors.Join(errRefused, err)
	}
	lines := bufio.NewReader(answer.Body)
	for {
		// A line without its end broke off, whatever it says.
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		data, found := strings.CutPrefix(strings.TrimSpace(line), "data:")
		if !found || strings.TrimSpace(data) == "[DONE]" {
			continue
		}
		var one event
		if err := json.Unmarshal([]byte(data), &one); err != nil {
			return err
		}
		if one.Error != nil {
			return fmt.Errorf("%s", one.Error)
		}
		if one.Resume != nil {
			if asked.Resume != nil {
				one.Resume.OutputIDs = asked.Resume.OutputIDs
			}
			asked.Resume = one.Resume
		}
		for _, choice := range one.Choices {
			fmt.Print(choice.Text)
			asked.Resume.OutputIDs = append(asked.Resume.OutputIDs, choice.TokenIDs...)
			if choice.FinishReason != nil {
				return nil
			}
		}
	}
}

func main() {
	asked := request{Prompt: os.Args[1], Stream: true, ReturnTokenIDs: true, MaxTokens: 64,
		Temperature: 0.8, IgnoreEOS: true, Seed: 7}
	urls := os.Args[2:]
	had, givenUp := 0, time.Now().Add(patience)
	for try := 0; ; try++ {
		url := urls[try%len(urls)]
		err := read(url, &asked)
		if err == nil {
			fmt.Println()
			return
		}
		if asked.Resume != nil && len(asked.Resume.OutputIDs) > had {
			had, givenUp = len(asked.Resume.OutputIDs), time.Now().Add(patience)
		}
		fmt.Fprintf(os.Stderr, "[%s: %v]\n", url, err)
		if errors.Is(err, errRefused) || time.Now().After(givenUp) {
			os.Exit(1)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
