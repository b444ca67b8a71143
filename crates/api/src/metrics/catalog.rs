//! Every metric: its name, its help text, and where its value is read. The reference page is generated from
//! this list. Names follow the Prometheus rules: base units, the unit last, `_total` for counters.

use super::{MetricFamily, MetricKind, MetricsSnapshot, SampleSource, Samples};
use punctual_client::ExecutionStatus;
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::ports::StoreHealth;

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&MetricsSnapshot, &mut Samples<'_>),
) -> MetricFamily {
    MetricFamily { name, kind: MetricKind::Counter, labels: &[], help, read: SampleSource::Snapshot(read) }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&MetricsSnapshot, &mut Samples<'_>),
) -> MetricFamily {
    MetricFamily { name, kind: MetricKind::Gauge, labels: &[], help, read: SampleSource::Snapshot(read) }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    read: fn(&MetricsSnapshot, &mut Samples<'_>),
) -> MetricFamily {
    MetricFamily { name, kind: MetricKind::Histogram, labels: &[], help, read: SampleSource::Snapshot(read) }
}

impl MetricFamily {
    const fn by(self, labels: &'static [&'static str]) -> Self {
        MetricFamily { labels, ..self }
    }

    /// Reads the value from what the store knows without a database query.
    const fn without_database(self, read: fn(&StoreHealth, &mut Samples<'_>)) -> Self {
        MetricFamily { read: SampleSource::Health(read), ..self }
    }
}

pub(super) const FAMILIES: &[MetricFamily] = &[
    // Current state.
    gauge("punctual_jobs", "Stored jobs, by status.", |now, out| {
        let mut jobs = now.jobs;
        for status in JobStatus::ALL {
            out.value(&[&status.as_str().to_ascii_lowercase()], *jobs.of(status));
        }
    })
    .by(&["status"]),
    gauge(
        "punctual_dead_letters",
        "Occurrences that failed permanently and were neither redriven nor discarded.",
        |now, out| {
            out.value(&[], now.jobs.dead_letters);
        },
    ),
    gauge("punctual_executions", "Executions that have not finished, by state.", |now, out| {
        for lane in &now.lanes {
            let (queue, job_type) = (lane.queue.as_str(), lane.job_type.as_str());
            out.value(&[queue, job_type, "waiting"], lane.waiting);
            out.value(&[queue, job_type, "queued"], lane.queued);
            out.value(&[queue, job_type, "running"], lane.running);
        }
    })
    .by(&["queue", "job_type", "state"]),
    gauge(
        "punctual_oldest_queued_seconds",
        "How long the longest-waiting claimable execution could have started; only the next 100 are \
         examined.",
        |now, out| {
            for lane in &now.lanes {
                out.seconds(&[&lane.queue, &lane.job_type], lane.oldest_wait_us);
            }
        },
    )
    .by(&["queue", "job_type"]),
    gauge("punctual_worker_sessions", "Worker sessions that are alive.", |now, out| {
        out.value(&[], now.worker_sessions);
    }),
    gauge("punctual_worker_slots", "Executions that the live workers can run at once.", |now, out| {
        out.value(&[], now.worker_slots);
    }),
    counter(
        "punctual_job_executions_finished_total",
        "Executions of a job that have ended, for jobs with metrics of their own; of all processes.",
        |now, out| {
            for (owner, name, total) in now.job_totals.rows() {
                for status in Status::ALL {
                    let word = ExecutionStatus::from(status).as_str().to_ascii_lowercase();
                    out.value(&[owner, name, &word], total.ended(status));
                }
            }
        },
    )
    .by(&["owner", "job_name", "status"]),
    counter(
        "punctual_job_execution_seconds_total",
        "How long the executions of a job ran in all, for jobs with metrics of their own.",
        |now, out| {
            for (owner, name, total) in now.job_totals.rows() {
                out.seconds(&[owner, name], i64::try_from(total.ran_us).unwrap_or(i64::MAX));
            }
        },
    )
    .by(&["owner", "job_name"]),
    gauge(
        "punctual_job_last_success_timestamp",
        "When the latest successful execution of a job has ended, in seconds since the Unix epoch, for jobs with \
         metrics of their own.",
        |now, out| {
            for (owner, name, total) in now.job_totals.rows() {
                if let Some(at) = total.last_success {
                    out.seconds(&[owner, name], at.as_micros());
                }
            }
        },
    )
    .by(&["owner", "job_name"]),
    gauge(
        "punctual_queue_concurrency_limit",
        "Executions that may be queued or running at once, for queues that limit them.",
        |now, out| {
            for limited in &now.limited {
                if let Some(concurrency) = limited.concurrency {
                    out.value(&[limited.queue.as_str()], u64::from(concurrency));
                }
            }
        },
    )
    .by(&["queue"]),
    gauge(
        "punctual_queue_limit_in_use",
        "Executions that are queued or running, for queues that limit them or their starts.",
        |now, out| {
            for limited in &now.limited {
                out.value(&[limited.queue.as_str()], limited.used.in_use);
            }
        },
    )
    .by(&["queue"]),
    gauge(
        "punctual_queue_limit_waiting",
        "Executions that wait only for a limit of their queue; those that wait for the limit of their \
         concurrency_key are not counted.",
        |now, out| {
            for limited in &now.limited {
                out.value(&[limited.queue.as_str()], limited.used.waiting);
            }
        },
    )
    .by(&["queue"]),
    gauge(
        "punctual_desired_slots",
        "Slots that are needed so that no execution of a queue waits longer than ten seconds; see the \
         autoscaling guide.",
        |now, out| {
            for (queue, slots) in &now.desired_slots {
                out.value(&[queue.as_str()], *slots);
            }
        },
    )
    .by(&["queue"]),
    gauge(
        "punctual_workers_refusing",
        "Worker sessions that refuse new work because memory, disk or CPU is short.",
        |now, out| out.value(&[], now.workers_refusing),
    ),
    // Completed work.
    counter("punctual_jobs_submitted_total", "Jobs submitted.", |now, out| {
        out.value(&[], now.counters.submitted);
    }),
    counter("punctual_occurrences_fired_total", "Occurrences fired by schedules.", |now, out| {
        out.value(&[], now.counters.fired);
    }),
    counter(
        "punctual_occurrences_skipped_total",
        "Occurrences that did not run, for a recorded reason.",
        |now, out| out.value(&[], now.counters.skipped),
    ),
    counter(
        "punctual_fire_conflicts_total",
        "Fires that found the schedule already fired or changed.",
        |now, out| out.value(&[], now.counters.fire_conflicts),
    ),
    counter("punctual_executions_claimed_total", "Executions leased to workers.", |now, out| {
        out.value(&[], now.counters.claimed);
    }),
    counter("punctual_executions_finished_total", "Executions that have ended, by how.", |now, out| {
        // Occurrences that were skipped have a metric of their own.
        for status in Status::ALL.into_iter().filter(|status| *status != Status::Skipped) {
            let label = ExecutionStatus::from(status).as_str().to_ascii_lowercase();
            out.value(&[&label], now.counters.of(status));
        }
    })
    .by(&["status"]),
    counter(
        "punctual_executions_retried_total",
        "Attempts that follow an attempt that did not succeed.",
        |now, out| {
            out.value(&[], now.counters.retried);
        },
    ),
    counter("punctual_executions_given_back_total", "Executions returned unstarted.", |now, out| {
        out.value(&[], now.counters.given_back);
    }),
    counter(
        "punctual_stale_calls_refused_total",
        "Calls of workers that were rejected because their lease or session was gone.",
        |now, out| {
            let counted = &now.counters;
            out.value(&["report"], counted.stale_reports);
            out.value(&["note"], counted.stale_notes);
            out.value(&["beat"], counted.stale_beats);
            out.value(&["give_back"], counted.stale_give_backs);
        },
    )
    .by(&["call"]),
    counter("punctual_worker_sessions_lost_total", "Worker sessions declared lost.", |now, out| {
        out.value(&[], now.counters.sessions_lost);
    }),
    counter(
        "punctual_notes_total",
        "Checkpoints and progress reports of handlers that were stored.",
        |now, out| {
            out.value(&[], now.counters.noted);
        },
    ),
    counter("punctual_log_lines_total", "Log lines of executions that were stored.", |now, out| {
        out.value(&[], now.counters.log_lines);
    }),
    // Durations.
    histogram(
        "punctual_fire_lateness_seconds",
        "Time from when a schedule was due to the commit of its fire.",
        |now, out| out.histogram(&[], &now.measures.fire_lateness),
    ),
    histogram(
        "punctual_start_lateness_seconds",
        "Time from the scheduled time of an occurrence to its first lease by a worker.",
        |now, out| out.histogram(&[], &now.measures.start_lateness),
    ),
    histogram(
        "punctual_queue_wait_seconds",
        "Time from when an attempt could start to its lease by a worker.",
        |now, out| out.histogram(&[], &now.measures.queue_wait),
    ),
    histogram("punctual_execution_duration_seconds", "How long handlers ran, by outcome.", |now, out| {
        for (outcome, times) in &now.measures.execution {
            let status = Status::ALL.into_iter().find(|status| status.word().eq_ignore_ascii_case(outcome));
            let exemplar = |bucket| now.exemplars.get(&(status?, bucket)).copied();
            out.histogram_with(&[outcome], times, exemplar);
        }
    })
    .by(&["outcome"]),
    histogram(
        "punctual_submit_duration_seconds",
        "Time from a submit to the response that its jobs are durable; a batch counts once.",
        |now, out| out.histogram(&[], &now.measures.submit),
    ),
    // The store.
    histogram("punctual_store_batch_items", "Items in one call to the store.", |now, out| {
        for (verb, items) in &now.measures.batches {
            out.histogram(&[verb], items);
        }
    })
    .by(&["verb"]),
    histogram(
        "punctual_store_transaction_duration_seconds",
        "How long transactions of the store took, their commit included.",
        |now, out| out.histogram(&[], &now.store.transaction_time),
    ),
    histogram("punctual_store_transaction_calls", "Calls that shared one transaction.", |now, out| {
        out.histogram(&[], &now.store.transaction_writes);
    }),
    histogram(
        "punctual_store_checkpoint_duration_seconds",
        "How long checkpoints of the write-ahead log took.",
        |now, out| out.histogram(&[], &now.store.checkpoint_time),
    ),
    counter("punctual_store_errors_total", "Reads and writes of the store that failed, by kind.", |_, _| {})
        .by(&["kind"])
        .without_database(|health, out| {
            for (kind, count) in &health.errors {
                out.value(&[kind], *count);
            }
        }),
    gauge(
        "punctual_store_damage_problems",
        "Problems that checks of the SQLite files have found; 0 when nothing is wrong. Up to 20 are listed.",
        |_, _| {},
    )
    .without_database(|health, out| out.value(&[], health.damage.len() as u64)),
    counter(
        "punctual_store_checks_total",
        "Background checks of the SQLite files that have covered everything.",
        |_, _| {},
    )
    .without_database(|health, out| out.value(&[], health.checks_completed)),
    counter(
        "punctual_store_malformed_rows_total",
        "Times that an unreadable row was skipped; `punctual check` lists the rows.",
        |now, out| out.value(&[], now.store.malformed_rows),
    ),
    gauge("punctual_store_database_bytes", "Size of the database.", |now, out| {
        out.value(&[], now.store.database_bytes);
    }),
    gauge("punctual_store_free_bytes", "Free space in the database that can be reused.", |now, out| {
        out.value(&[], now.store.free_bytes);
    }),
    gauge("punctual_store_wal_bytes", "Size of the write-ahead log.", |now, out| {
        out.value(&[], now.store.wal_bytes);
    }),
    gauge("punctual_store_log_lines_bytes", "Size of the database of log lines.", |now, out| {
        out.value(&[], now.store.log_bytes);
    }),
    counter(
        "punctual_store_log_lines_removed_total",
        "Log lines that this process removed because all logs together had reached logs.total_size_max.",
        |now, out| out.value(&[], now.store.log_lines_removed),
    ),
    counter("punctual_store_log_bytes_removed_total", "Size of the text of these lines.", |now, out| {
        out.value(&[], now.store.log_bytes_removed);
    }),
    // The API.
    counter("punctual_http_requests_total", "Requests answered, by route and status class.", |now, out| {
        for route in &now.traffic.routes {
            for (class, count) in route.by_class() {
                out.value(&[route.method, &route.path, class], count);
            }
        }
    })
    .by(&["method", "route", "status"]),
    histogram(
        "punctual_http_request_duration_seconds",
        "Time from a request to the head of its response. Polls and streams wait by design.",
        |now, out| {
            for route in &now.traffic.routes {
                out.histogram(&[route.method, &route.path], &route.time);
            }
        },
    )
    .by(&["method", "route"]),
    counter(
        "punctual_http_requests_limited_total",
        "Requests that were answered 429 because of a rate limit, by the setting of the limit.",
        |now, out| {
            for (kind, count) in now.traffic.limited {
                out.value(&[kind.word()], count);
            }
        },
    )
    .by(&["limit"]),
    gauge("punctual_http_connections", "Open connections.", |now, out| {
        out.value(&[], now.traffic.open);
    }),
    counter("punctual_http_connections_accepted_total", "Connections accepted.", |now, out| {
        out.value(&[], now.traffic.accepted);
    }),
    counter("punctual_http_accept_errors_total", "Connections that could not be accepted.", |now, out| {
        out.value(&[], now.traffic.failed);
    }),
    counter("punctual_http_tls_handshake_errors_total", "TLS handshakes that failed.", |now, out| {
        out.value(&[], now.traffic.handshakes_failed);
    }),
    counter(
        "punctual_http_tls_reload_errors_total",
        "Changed certificate files that could not be used; the server keeps the previous certificate.",
        |now, out| {
            out.value(&[], now.traffic.reloads_failed);
        },
    ),
    // The server.
    gauge("punctual_build_info", "Always 1; the label is the version of the server.", |_, out| {
        out.value(&[env!("CARGO_PKG_VERSION")], 1);
    })
    .by(&["version"]),
    gauge(
        "punctual_start_time_seconds",
        "When the server started, in seconds since the Unix epoch.",
        |now, out| {
            out.seconds(&[], now.started_at_us);
        },
    ),
    gauge(
        "punctual_clock_offset_seconds",
        "How far the store's clock is ahead of this machine's clock.",
        |now, out| out.seconds(&[], now.clock_offset_us),
    ),
    gauge(
        "punctual_clock_offset_max_seconds",
        "How far the two clocks may differ before this process stops firing.",
        |now, out| out.seconds(&[], now.clock_offset_max_us),
    ),
    gauge(
        "punctual_clock_is_off",
        "1 while the clocks differ by more than that, and this process fires nothing.",
        |now, out| {
            out.value(&[], u64::from(now.cluster.is_off));
        },
    ),
    gauge(
        "punctual_retention_paused",
        "1 while this process deletes nothing by age, because the store's clock jumped or has been checked \
         for less than 10 minutes.",
        |now, out| out.value(&[], u64::from(now.is_retention_paused)),
    ),
    // The cluster.
    gauge(
        "punctual_cluster_members",
        "Processes of the cluster, as this one last saw them; 0 without coordination.",
        |now, out| out.value(&[], now.cluster.members as u64),
    ),
    gauge(
        "punctual_cluster_is_coordinated",
        "1 while this process is a member and coordination answers; a scheduler without coordination fires \
         every segment.",
        |now, out| out.value(&[], u64::from(now.cluster.is_coordinated)),
    ),
    gauge(
        "punctual_cluster_segments",
        "How many of the 64 segments of all jobs this process fires.",
        |now, out| {
            out.value(&[], now.cluster.segments as u64);
        },
    ),
    gauge("punctual_cluster_is_leader", "1 if this process is the leader of the cluster.", |now, out| {
        out.value(&[], u64::from(now.cluster.leads));
    }),
    counter(
        "punctual_cluster_rebalances_total",
        "How often the segments that this process fires have changed.",
        |now, out| out.value(&[], now.counters.rebalances),
    ),
    counter("punctual_coordination_errors_total", "Calls to coordination that failed.", |now, out| {
        out.value(&[], now.counters.coordination_errors);
    }),
    // The ready queue.
    gauge(
        "punctual_ready_queue_connected",
        "1 while hints of queued work arrive from other processes; absent if nothing carries them, so that this process \
         polls.",
        |now, out| {
            if let Some(queue) = &now.ready_queue {
                out.value(&[queue.kind], u64::from(queue.is_receiving));
            }
        },
    )
    .by(&["kind"]),
    counter("punctual_ready_queue_published_total", "Hints sent to other processes.", |now, out| {
        out.value(&[], now.counters.hints_published);
    }),
    counter(
        "punctual_ready_queue_received_total",
        "Hints received from other processes; several that arrive together count once.",
        |now, out| out.value(&[], now.counters.hints_received),
    ),
    counter(
        "punctual_ready_queue_errors_total",
        "Hints that could not be sent, and failed attempts to receive them.",
        |now, out| out.value(&[], now.counters.hint_errors),
    ),
    counter(
        "punctual_ready_queue_ignored_total",
        "Messages of the broker that were ignored: not signed with the key of this cluster, or received before.",
        |now, out| {
            if let Some(queue) = &now.ready_queue {
                out.value(&["unsigned"], queue.figures.rejected);
                out.value(&["repeated"], queue.figures.repeated);
            }
        },
    )
    .by(&["reason"]),
    counter(
        "punctual_ready_queue_watchdog_reconnects_total",
        "Connections to the broker that were replaced because messages of this process did not come back.",
        |now, out| out.value(&[], now.ready_queue.as_ref().map_or(0, |queue| queue.figures.watchdog_reconnects)),
    ),
    // Events for other systems, and jobs from them.
    gauge(
        "punctual_events_waiting",
        "Finished executions whose events are not published yet; reported by the leader, absent if events.url is not set.",
        |now, out| {
            if let Some(events) = &now.events {
                out.value(&[], events.waiting);
            }
        },
    ),
    gauge(
        "punctual_events_lag_seconds",
        "How long ago the oldest execution finished whose event is not published yet; reported by the leader.",
        |now, out| {
            if let Some(events) = &now.events {
                out.seconds(&[], events.lag_us);
            }
        },
    ),
    counter("punctual_events_published_total", "Events that the broker has confirmed.", |now, out| {
        out.value(&[], now.counters.events_published);
    }),
    counter(
        "punctual_events_errors_total",
        "Batches of events that the broker has not confirmed; they are published again.",
        |now, out| out.value(&[], now.counters.event_errors),
    ),
    counter(
        "punctual_intake_accepted_total",
        "Messages of the broker whose jobs were stored, or had been before.",
        |now, out| out.value(&[], now.counters.intake_accepted),
    ),
    counter(
        "punctual_intake_rejected_total",
        "Messages of the broker that contained no valid job, and were moved to the rejected ones.",
        |now, out| out.value(&[], now.counters.intake_rejected),
    ),
    counter(
        "punctual_intake_errors_total",
        "Failed attempts to receive messages with jobs, to store their jobs or to acknowledge them; they are repeated.",
        |now, out| out.value(&[], now.counters.intake_errors),
    ),
    // Traces.
    counter(
        "punctual_tracing_spans_exported_total",
        "Spans that the collector has accepted; absent if tracing.endpoint is not set.",
        |now, out| {
            if let Some(spans) = &now.spans {
                out.value(&[], spans.exported);
            }
        },
    ),
    counter(
        "punctual_tracing_spans_dropped_total",
        "Spans that were lost: the queue was full, or the collector did not accept them; absent if tracing.endpoint is \
         not set.",
        |now, out| {
            if let Some(spans) = &now.spans {
                out.value(&[], spans.dropped);
            }
        },
    ),
    counter("punctual_fires_late_total", "Schedules that were fired more than 5 s late.", |now, out| {
        out.value(&[], now.counters.late_fires);
    }),
    gauge(
        "punctual_overdue_seconds",
        "How long the oldest due schedule that no scheduler fires has been due, if more than 5 s; reported \
         by the leader.",
        |now, out| out.seconds(&[], now.overdue_us),
    ),
];
