package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed assets pages
var files embed.FS

// asset is a served file.
type asset struct {
	content []byte
	version string // changes with the content
}

var assets = readAssets()

func readAssets() map[string]asset {
	all := map[string]asset{}
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	for _, entry := range entries {
		content, err := fs.ReadFile(files, path.Join("assets", entry.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		all[entry.Name()] = asset{content, hex.EncodeToString(sum[:6])}
	}
	return all
}

// assetPath is where a page finds an asset. A replica of another version has the file under the
// same path, so that a page works whichever replica its files come from.
func assetPath(name string) string { return "/assets/" + name + "?v=" + assets[name].version }

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", `"`+a.version+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	protect(w.Header())
	http.ServeContent(w, r, r.PathValue("name"), time.Time{}, bytes.NewReader(a.content))
}

// templates are the pages by name, each with the layout and the parts that pages share.
var templates = parsePages()

func parsePages() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(words).ParseFS(files, "pages/layout.html", "pages/parts.html"))
	all := map[string]*template.Template{}
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err) // a pattern that can't be
	}
	for _, name := range names {
		if name == "pages/layout.html" || name == "pages/parts.html" {
			continue
		}
		all[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(template.Must(shared.Clone()).ParseFS(files, name))
	}
	return all
}
