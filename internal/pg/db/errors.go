package db

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
)

// Constraints maps the sentence that a constraint is to what its violation means. A test knows every
// constraint of the schema.
var Constraints = map[string]fault.Kind{
	"one_row_per_epoch":                     fault.Internal,
	"epoch_fits_into_an_id":                 fault.Internal,
	"one_context_per_name":                  fault.Conflict,
	"context_depth_is_positive":             fault.Invalid,
	"one_actor_per_id":                      fault.Conflict,
	"two_public_keys_at_most":               fault.Invalid,
	"one_actor_per_request_key":             fault.Conflict,
	"issuer_comes_with_subject":             fault.Invalid,
	"one_actor_per_subject":                 fault.Conflict,
	"member_is_an_actor":                    fault.Conflict,
	"role_of_a_member_is_known":             fault.Invalid,
	"one_member_per_role":                   fault.Internal,
	"sql_role_is_known":                     fault.Invalid,
	"one_sql_role_per_context":              fault.Conflict,
	"one_api_key_per_id":                    fault.Internal,
	"one_api_key_per_prefix":                fault.Conflict,
	"role_of_a_key_is_known":                fault.Invalid,
	"one_api_key_per_request_key":           fault.Conflict,
	"one_batch_per_request_key":             fault.Conflict,
	"one_pool_per_name":                     fault.Conflict,
	"after_failure_is_known":                fault.Invalid,
	"one_dispatcher_per_type":               fault.Conflict,
	"one_secret_per_dispatcher":             fault.Internal,
	"one_sender_per_account":                fault.Conflict,
	"one_queue_per_sender":                  fault.Internal,
	"one_lane_per_need":                     fault.Internal,
	"lane_kind_is_known":                    fault.Internal,
	"lane_has_what_its_kind_says":           fault.Internal,
	"one_lane_per_holder":                   fault.Internal,
	"only_exclusive_lanes_are_held":         fault.Internal,
	"one_queue_per_name":                    fault.Conflict,
	"one_name_per_queue":                    fault.Internal,
	"priority_is_high_or_med":               fault.Invalid,
	"queue_depth_is_positive":               fault.Invalid,
	"when_full_is_known":                    fault.Invalid,
	"on_failure_is_known":                   fault.Invalid,
	"one_epoch_of_a_node":                   fault.Internal,
	"one_store":                             fault.Internal,
	"one_store_only":                        fault.Internal,
	"one_quarantine_per_id":                 fault.Internal,
	"one_quarantine_per_scope":              fault.Internal,
	"one_unreconciled_per_transaction":      fault.Internal,
	"unreconciled_is_known":                 fault.Internal,
	"one_row_per_queue":                     fault.Internal,
	"queue_by_era":                          fault.Internal,
	"a_queue_keeps_its_rules":               fault.Internal,
	"phase_follows_the_machine":             fault.Internal,
	"in_flight_has_a_position":              fault.Internal,
	"idle_is_empty":                         fault.Internal,
	"head_follows_tail_by_one":              fault.Internal,
	"position_lies_in_queue":                fault.Internal,
	"next_lies_in_queue":                    fault.Internal,
	"sender_is_held_in_flight_only":         fault.Internal,
	"owner_has_an_epoch":                    fault.Internal,
	"owner_has_work_in_flight":              fault.Internal,
	"waiting_has_a_lane":                    fault.Internal,
	"one_place_in_a_lane":                   fault.Internal,
	"one_timer_per_queue":                   fault.Internal,
	"node_kind_is_known":                    fault.Internal,
	"one_task_per_position":                 fault.Internal,
	"one_outcome_per_transaction":           fault.Internal,
	"an_outcome_keeps_its_rules":            fault.Internal,
	"outcome_follows_the_machine":           fault.Internal,
	"one_row_per_attempt_and_step":          fault.Internal,
	"step_is_known":                         fault.Internal,
	"event_is_known":                        fault.Internal,
	"delivery_state_is_known":               fault.Internal,
	"one_delivery_per_endpoint":             fault.Internal,
	"cursors_are_of_subscriptions":          fault.Internal,
	"subscription_kind_is_known":            fault.Invalid,
	"on_error_is_known":                     fault.Invalid,
	"webhook_has_url_and_secret":            fault.Invalid,
	"one_subscription_per_name":             fault.Conflict,
	"one_checkpoint_of_each":                fault.Internal,
	"one_fanout_per_subscription":           fault.Internal,
	"pending_has_a_next_time":               fault.Internal,
	"mark_kind_is_known":                    fault.Internal,
	"one_mark_of_a_kind":                    fault.Conflict,
	"placed_has_a_rank":                     fault.Internal,
	"one_row_per_dependency":                fault.Internal,
	"one_ripple_per_end":                    fault.Internal,
	"one_retention":                         fault.Internal,
	"one_retention_only":                    fault.Internal,
	"one_rolling_per_hour":                  fault.Internal,
	"one_run_per_hour":                      fault.Internal,
	"one_part_of_a_number":                  fault.Internal,
	"one_rollup_per_hour":                   fault.Internal,
	"one_rollup_of_times":                   fault.Internal,
	"one_rollup_of_failures":                fault.Internal,
	"one_rollup_per_sender":                 fault.Internal,
	"one_rollup_per_subscription":           fault.Internal,
	"one_load_per_node":                     fault.Internal,
	"one_row_per_stuck_queue":               fault.Internal,
	"one_redrive_per_transaction":           fault.Conflict,
	"one_transaction_per_key":               fault.Conflict,
	"one_staged_row_per_uid":                fault.Conflict,
	"tick_interval_is_not_negative":         fault.Invalid,
	"height_is_not_negative":                fault.Invalid,
	"deliver_within_not_negative":           fault.Invalid,
	"one_processor_per_name":                fault.Conflict,
	"line_is_high_or_med":                   fault.Internal,
	"length_is_not_negative":                fault.Internal,
	"one_line_per_priority":                 fault.Internal,
	"one_peer_per_name":                     fault.Internal,
	"bounds_enclose":                        fault.Internal,
	"one_place_per_batch":                   fault.Internal,
	"one_batch_per_place":                   fault.Internal,
	"channel_capacity_is_positive":          fault.Invalid,
	"channel_retries_are_positive":          fault.Invalid,
	"channel_waits_are_positive":            fault.Invalid,
	"one_channel_per_name":                  fault.Conflict,
	"channel_message_state_is_known":        fault.Internal,
	"only_active_channel_messages_are_held": fault.Internal,
	"one_channel_message_per_id":            fault.Internal,
	"channel_message_end_is_known":          fault.Internal,
	"one_end_per_life":                      fault.Internal,
	"tool_health_is_known":                  fault.Internal,
	"tool_signature_is_known":               fault.Internal,
	"one_tool_per_fqn":                      fault.Conflict,
	"running_is_not_negative":               fault.Internal,
	"one_authorization_per_label":           fault.Conflict,
	"spent_is_not_negative":                 fault.Internal,
	"one_count_of_calls_per_actor":          fault.Internal,
	"one_row_per_batch":                     fault.Internal,
	"a_batch_keeps_its_rules":               fault.Internal,
	"batch_is_high_or_med":                  fault.Internal,
	"result_comes_with_the_end":             fault.Internal,
	"result_is_known":                       fault.Internal,
	"batch_follows_the_machine":             fault.Internal,
	"what_was_executed_is_counted":          fault.Internal,
	"one_execution_per_processor":           fault.Internal,
	"one_row_per_run":                       fault.Internal,
	"a_verdict_has_a_time":                  fault.Internal,
	"one_success_per_action":                fault.Internal,
	"one_callback_per_batch":                fault.Internal,
	"one_row_per_step":                      fault.Internal,
	"notices_are_of_timeouts":               fault.Internal,
	"one_step_per_notice":                   fault.Internal,
	"table_source_has_one":                  fault.Invalid,
	"source_kind_is_known":                  fault.Invalid,
	"source_start_is_known":                 fault.Invalid,
	"on_undecodable_is_known":               fault.Invalid,
	"source_state_is_known":                 fault.Internal,
	"one_source_per_name":                   fault.Conflict,
	"one_event_per_number":                  fault.Internal,
	"event_retries_not_below_zero":          fault.Invalid,
	"events_grow_stale_later":               fault.Invalid,
	"an_event_keeps_its_rules":              fault.Internal,
	"event_outcome_is_known":                fault.Internal,
	"event_follows_the_machine":             fault.Internal,
	"one_move_at_a_time":                    fault.Internal,
	"one_drop_per_event":                    fault.Internal,
	"one_event_per_identity":                fault.Internal,
}

// partitioned names the keys of the tables that have a partition per day. PostgreSQL names the violated
// key by its partition, as outcome_20060102_pkey.
var partitioned = map[string]string{
	"task":     "one_task_per_position",
	"outcome":  "one_outcome_per_transaction",
	"attempt":  "one_row_per_attempt_and_step",
	"delivery": "one_delivery_per_endpoint",
}

// sentence is the name of the violated constraint as the schema gives it.
func sentence(e *pgconn.PgError) string {
	table, day, ok := strings.Cut(e.TableName, "_")
	if ok && len(day) == len("20060102") && e.ConstraintName == e.TableName+"_pkey" {
		return partitioned[table]
	}
	return e.ConstraintName
}

// Known turns an error of the driver into a fault where one is meant, and leaves the rest alone. It is for what has
// changed nothing: see commitUnknown and written for what may have.
func Known(err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if lost(err) {
			return unavailable(err)
		}
		return err
	}
	if lack := Lacking("", err); lack != nil {
		return lack
	}
	name := sentence(e)
	if kind, ok := Constraints[name]; ok {
		return fault.New(kind, string(kind), "%s", strings.ReplaceAll(name, "_", " ")).Because(err)
	}
	switch {
	case e.Code == "53100":
		return fault.New(fault.Retry, "disk_full", "the database has no disk space left").After(10 * time.Second).Because(err)
	case e.Code == "55P03", e.Code == "57014":
		return fault.New(fault.Retry, "overloaded", "the database did not get to this in time").After(time.Second).Because(err)
	case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "53"), e.Code == "25006",
		fatal(e):
		return unavailable(err)
	}
	return err
}

// fatal says whether the server ended the session with an error. Its Severity is in the language of the server.
func fatal(e *pgconn.PgError) bool {
	return e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
}

// refused says whether the server refused what was sent, and stays to be asked: then it has changed nothing.
func refused(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && !fatal(e)
}

// lost says whether err comes from a connection that broke, or was not there, and not from what was asked.
func lost(err error) bool {
	var op net.Error
	var number syscall.Errno
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &op), errors.As(err, &number), errors.As(err, &connect), pgconn.Timeout(err):
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed)
}

// broken is known for what was done on conn and not committed. Where conn has ended by that, nothing was done, even if
// no list knows the error.
func broken(conn *pgxpool.Conn, err error) error {
	if lack := Lacking(conn.Conn().Config().User, err); lack != nil && fault.KindOf(err) == fault.Internal {
		return lack
	}
	err = Known(err)
	if err != nil && fault.KindOf(err) == fault.Internal && conn.Conn().IsClosed() && !errors.Is(err, context.Canceled) && !unprepared(err) {
		return unavailable(err)
	}
	return err
}

// written makes "commit_unknown" of the error of a statement that is a transaction of its own, unless the server has
// refused it, it was never sent, or the caller has ended it.
func written(err error) error {
	var connect *pgconn.ConnectError
	switch {
	case err == nil, refused(err), pgconn.SafeToRetry(err), errors.As(err, &connect), errors.Is(err, context.Canceled):
		return err
	case fault.KindOf(err) != fault.Internal:
		return err
	}
	return commitUnknown(err)
}

// commitUnknown says that something was committed or was not, and that a repetition under its key tells.
func commitUnknown(err error) error {
	return fault.New(fault.Retry, "commit_unknown",
		"the database did not say whether this was committed: send it again, with the same Idempotency-Key if it has one").
		After(time.Second).Because(err)
}

func unavailable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err == context.DeadlineExceeded { //nolint:errorlint // the pool's own, for want of a free connection: those of connections wrap it
		return fault.New(fault.Retry, "database_unavailable", "no connection to the database was free in time").After(time.Second).Because(err)
	}
	return fault.New(fault.Retry, "database_unavailable", "the database cannot be reached").After(time.Second).Because(err)
}

func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// unprepared says whether a prepared statement is no longer what it was: the migration of a newer program has changed a type of what it
// returns, or somebody has dropped it. pgx prepares anew what it has prepared by itself, and not what has practised: such a
// connection is closed.
func unprepared(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "26000" || e.Code == "0A000" && e.Routine == "RevalidateCachedQuery")
}
