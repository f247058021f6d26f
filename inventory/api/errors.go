package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"holdfast/internal/httpapi"
	"holdfast/inventory"
	"holdfast/webhook"
)

// rules tell clients of the refusals of commands.
var rules = []httpapi.Rule{
	{Err: inventory.ErrInvalid, Status: http.StatusUnprocessableEntity, Code: httpapi.CodeValidationFailed, Tell: tellInvalid},
	{Err: inventory.ErrCustomerRequired, Status: http.StatusUnprocessableEntity, Code: "customer_required", Tell: httpapi.TellAll},
	{Err: inventory.ErrOverConfirmed, Status: http.StatusUnprocessableEntity, Code: "over_confirmed", Tell: httpapi.TellAll},
	{Err: inventory.ErrSKUNotFound, Status: http.StatusNotFound, Code: "sku_not_found", Tell: httpapi.TellAll},
	{Err: inventory.ErrLocationNotFound, Status: http.StatusNotFound, Code: "location_not_found", Tell: httpapi.TellAll},
	{Err: inventory.ErrReservationNotFound, Status: http.StatusNotFound, Code: "reservation_not_found"},
	{Err: inventory.ErrPlaceNotFound, Status: http.StatusNotFound, Code: "place_not_found"},
	{Err: inventory.ErrAlreadyWaiting, Status: http.StatusConflict, Code: "already_waiting", Tell: tellPlace},
	{Err: inventory.ErrSoldOut, Status: http.StatusConflict, Code: "sold_out", Tell: tellShortages},
	{Err: inventory.ErrExpiredSoldOut, Status: http.StatusConflict, Code: "expired_sold_out", Tell: tellShortages},
	{Err: inventory.ErrCustomerLimit, Status: http.StatusConflict, Code: "customer_limit", Tell: tellLimit},
	{Err: inventory.ErrHeld, Status: http.StatusConflict, Code: "held", Tell: tellState},
	{Err: inventory.ErrExpired, Status: http.StatusConflict, Code: "expired", Tell: tellState},
	{Err: inventory.ErrReleased, Status: http.StatusConflict, Code: "released", Tell: tellState},
	{Err: inventory.ErrConfirmed, Status: http.StatusConflict, Code: "confirmed", Tell: tellState},
	{Err: inventory.ErrOverReturned, Status: http.StatusConflict, Code: "over_returned", Tell: httpapi.TellAll},
	{Err: inventory.ErrExtensionLimit, Status: http.StatusConflict, Code: "extension_limit"},
	{Err: inventory.ErrBelowHeld, Status: http.StatusConflict, Code: "below_held", Tell: httpapi.TellAll},
	{Err: inventory.ErrCountChanged, Status: http.StatusConflict, Code: "count_changed", Tell: httpapi.TellAll},
	{Err: inventory.ErrLocationInUse, Status: http.StatusConflict, Code: "location_in_use", Tell: httpapi.TellAll},
	{Err: inventory.ErrSKUInUse, Status: http.StatusConflict, Code: "sku_in_use"},
	{Err: webhook.ErrTargetForbidden, Status: http.StatusUnprocessableEntity, Code: "target_forbidden", Tell: tellTarget},
	{Err: inventory.ErrSubscriptionNotFound, Status: http.StatusNotFound, Code: "subscription_not_found"},
	{Err: inventory.ErrDeliveryNotFound, Status: http.StatusNotFound, Code: "delivery_not_found"},
	{Err: inventory.ErrSubscriptionLimit, Status: http.StatusConflict, Code: "subscription_limit"},
	{Err: inventory.ErrTenantListeners, Status: http.StatusTooManyRequests, Code: "too_many_listeners", Tell: comeBack},
	{Err: inventory.ErrTooManyListeners, Status: http.StatusServiceUnavailable, Code: httpapi.CodeOverloaded, Tell: comeBack},
	{Err: inventory.ErrStreamEnded, Status: http.StatusServiceUnavailable, Code: httpapi.CodeOverloaded, Tell: comeBack},
	{Err: inventory.ErrOverloaded, Status: http.StatusServiceUnavailable, Code: httpapi.CodeOverloaded, Tell: func(_ error, p *httpapi.Problem) {
		p.RetryAfter = time.Second
	}},
	{Err: inventory.ErrImportStopped, Status: http.StatusServiceUnavailable, Code: "import_stopped", Tell: func(_ error, p *httpapi.Problem) {
		p.Detail, p.RetryAfter = "This replica is stopping, so it has ended the import.", time.Second
	}},
	{Err: inventory.ErrSettings, Status: http.StatusConflict, Code: "settings_conflict"},
}

func tellInvalid(err error, p *httpapi.Problem) {
	var bad *inventory.InvalidError
	if errors.As(err, &bad) {
		location := "body." + bad.Field
		if bad.Field == "sku" || bad.Field == "location" { // the fields of commands that come from the path
			location = "path." + bad.Field
		}
		p.Detail = bad.Error()
		p.Errors = []httpapi.FieldError{{Location: location, Message: bad.Reason}}
	}
}

func tellShortages(err error, p *httpapi.Problem) {
	var short *inventory.ShortageError
	if errors.As(err, &short) {
		p.Detail = short.Error()
		p.Members = map[string]any{"shortages": json.RawMessage(httpapi.AppendList(nil, short.Shortages, appendShortage))}
	}
}

func tellLimit(err error, p *httpapi.Problem) {
	var limit *inventory.CustomerLimitError
	if errors.As(err, &limit) {
		p.Detail = limit.Error()
		p.Members = map[string]any{"sku": limit.SKU, "limit": limit.Limit, "has": limit.Has, "wanted": limit.Wanted}
	}
}

func tellPlace(err error, p *httpapi.Problem) {
	var already *inventory.AlreadyWaitingError
	if errors.As(err, &already) {
		p.Detail = already.Error()
		p.Members = map[string]any{"place_id": already.ID}
	}
}

func tellState(err error, p *httpapi.Problem) {
	var state *inventory.StateError
	if errors.As(err, &state) {
		p.Detail = state.Error()
		p.Members = map[string]any{"reservation_status": state.Status}
	}
}

func tellTarget(err error, p *httpapi.Problem) {
	var bad *webhook.FieldError
	if errors.As(err, &bad) {
		p.Detail = bad.Error()
		p.Errors = []httpapi.FieldError{{Location: "body." + bad.Field, Message: bad.Reason}}
	}
}

func comeBack(_ error, p *httpapi.Problem) { p.RetryAfter = 5 * time.Second }
