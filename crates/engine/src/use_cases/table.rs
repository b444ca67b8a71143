//! Which permission each use case needs. This is the only place that says so; `docs/reference/permissions.md`
//! and the OpenAPI document are made from it.

use punctual_core::access::Permission;

macro_rules! use_cases {
    ($($(#[$doc:meta])* $case:ident = $name:literal: $permission:ident $($server_wide:ident)?,)*) => {
        /// Everything that a caller can ask of a node.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum UseCase {
            $($(#[$doc])* $case,)*
        }

        impl UseCase {
            pub const ALL: &'static [UseCase] = &[$(UseCase::$case),*];

            /// Its name in the audit log and in the documentation.
            pub fn name(self) -> &'static str {
                match self { $(UseCase::$case => $name),* }
            }

            pub fn permission(self) -> Permission {
                match self { $(UseCase::$case => Permission::$permission),* }
            }

            /// Whether it covers everything on the server, so that a caller with a limited scope is refused.
            pub fn is_server_wide(self) -> bool {
                match self { $(UseCase::$case => !<[&str]>::is_empty(&[$(stringify!($server_wide)),*])),* }
            }
        }
    };
}

use_cases! {
    ReadJobs = "job.read": JobsRead,
    ReadExecutions = "execution.read": JobsRead,
    ReadDeadLetters = "dead_letter.read": JobsRead,
    ReadEvents = "event.read": JobsRead,
    ReadSeries = "series.read": JobsRead,
    ExplainJob = "job.explain": JobsRead,
    PreviewSchedule = "schedule.preview": JobsRead,
    ReadResult = "execution.read_result": PayloadRead,
    ReadLogs = "log.read": PayloadRead,
    SearchLogs = "log.search": PayloadRead,
    Submit = "job.submit": JobsWrite,
    UpdateJob = "job.update": JobsWrite,
    PauseJob = "job.pause": JobsWrite,
    ResumeJob = "job.resume": JobsWrite,
    CancelJob = "job.cancel": JobsWrite,
    RetryJob = "job.retry": JobsWrite,
    TriggerJob = "job.trigger": JobsWrite,
    SkipNext = "job.skip_next": JobsWrite,
    RunNextAt = "job.run_next_at": JobsWrite,
    Backfill = "job.backfill": JobsWrite,
    DeleteJob = "job.delete": JobsWrite,
    CancelExecution = "execution.cancel": JobsWrite,
    RerunExecution = "execution.rerun": JobsWrite,
    Redrive = "dead_letter.redrive": JobsWrite,
    Discard = "dead_letter.discard": JobsWrite,
    ReadCalendars = "calendar.read": JobsRead,
    SetCalendar = "calendar.set": QueuesWrite server_wide,
    RemoveCalendar = "calendar.remove": QueuesWrite server_wide,
    ReadViews = "view.read": JobsRead,
    SetView = "view.set": JobsRead,
    RemoveView = "view.remove": JobsRead,
    StartBulk = "bulk.start": JobsWrite,
    ReadBulk = "bulk.read": JobsRead,
    CancelBulk = "bulk.cancel": JobsWrite,
    ReadQueues = "queue.read": ServerRead,
    SetQueue = "queue.set": QueuesWrite,
    PauseQueue = "queue.pause": QueuesWrite,
    ResumeQueue = "queue.resume": QueuesWrite,
    ReadPause = "cluster.read_pause": ServerRead,
    SetPause = "cluster.pause": QueuesWrite server_wide,
    EndPause = "cluster.resume": QueuesWrite server_wide,
    ReadWorkers = "worker.read": ServerRead,
    OrderWorker = "worker.order": WorkersWrite server_wide,
    ReadStats = "stats.read": ServerRead,
    ReadServer = "server.read": ServerRead server_wide,
    DriveClock = "clock.drive": ClockWrite server_wide,
    Work = "worker.run": Work,
    ReadTokens = "token.read": AccessRead server_wide,
    CreateToken = "token.create": AccessWrite server_wide,
    RevokeToken = "token.revoke": AccessWrite server_wide,
    UpdateToken = "token.update": AccessWrite server_wide,
    RotateToken = "token.rotate": AccessWrite server_wide,
    ReadUsers = "user.read": AccessRead server_wide,
    AddUser = "user.add": AccessWrite server_wide,
    UpdateUser = "user.update": AccessWrite server_wide,
    RemoveUser = "user.remove": AccessWrite server_wide,
    ReadAudit = "audit.read": AuditRead server_wide,
    ReadSettings = "settings.read": AuditRead server_wide,
    ReadSecrets = "secret.read": SecretsRead,
    SetSecret = "secret.set": SecretsWrite,
    RemoveSecret = "secret.remove": SecretsWrite,
    RotateSecrets = "secret.rotate": SecretsWrite server_wide,
    ReadChannels = "channel.read": NotificationsRead,
    SetChannel = "channel.set": NotificationsWrite server_wide,
    RemoveChannel = "channel.remove": NotificationsWrite server_wide,
    TestChannel = "channel.test": NotificationsWrite server_wide,
    ReadNotifications = "notification.read": NotificationsRead server_wide,
    SetNotificationRule = "notification_rule.set": NotificationsWrite server_wide,
    RemoveNotificationRule = "notification_rule.remove": NotificationsWrite server_wide,
    AddSilence = "silence.add": NotificationsWrite server_wide,
    RemoveSilence = "silence.remove": NotificationsWrite server_wide,
    AcknowledgeAlert = "alert.acknowledge": NotificationsWrite server_wide,
    ReplayDelivery = "delivery.replay": NotificationsWrite server_wide,
    ResumeNotifications = "notification.resume": NotificationsWrite server_wide,
    ReadJobTypes = "job_type.read": JobsRead,
    SetJobType = "job_type.set": QueuesWrite server_wide,
    RemoveJobType = "job_type.remove": QueuesWrite server_wide,
}
