// Package web is the dashboards of both services: pages for people, at / of every replica.
//
// # What a page is
//
// A page is made whole on the server, in one request, from what the service's Store reads. It
// needs no script. With the one script there is, it asks for itself again every two seconds
// and changes what differs in its main part, so that focus, selection and scrolling stay;
// it stops while nobody looks, and says so when the service can't be reached.
//
// Pages only read. What a page asks of the database is bounded by the number of rows that it shows, and a
// replica makes few pages at once, so that watching never takes the connections that work needs.
//
// # Who sees what
//
// With authentication on, a browser asks for an API key, as the password of HTTP Basic; the user
// name doesn't matter. The key needs the scope read, and the page shows what its tenant may see.
// With authentication off it is the tenant of [apikey.Anyone]. Style sheet and script are open.
//
// # What can't happen
//
// All text is escaped by html/template, and the Content-Security-Policy lets the browser run and
// apply nothing but the served files, so pages have no style attributes: what has a
// measured size is SVG.
package web
