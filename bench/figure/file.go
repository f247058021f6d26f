package figure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Read reads what [Write] wrote: the latest result of each load; none if there is no file.
func Read[R any](path string) (map[string]R, error) {
	all := map[string]R{}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Write keeps the latest result of each load.
func Write[R any](path string, all map[string]R) error {
	content, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
