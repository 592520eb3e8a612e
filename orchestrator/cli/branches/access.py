"""Commands about who may do what, who did what, and where it is kept."""

from __future__ import annotations

from orchestrator.cli.branches.shape import Branch, Leaf

TOKEN = Branch(
    "token",
    "Tokens that requests are made with.",
    (
        Leaf("create", "Make a token.", "tokens:create"),
        Leaf("list", "List every token, without secrets.", "tokens:list_all"),
        Leaf("show", "Show what the token in use may do.", "tokens:show"),
        Leaf("rotate", "Replace a token; for a while both are good.", "tokens:rotate"),
        Leaf("revoke", "Make a token invalid, at once.", "tokens:revoke"),
    ),
)

AUDIT = Branch(
    "audit",
    "The record of what was done and by whom, and proof that it was not changed.",
    (
        Leaf("list", "List what was done, and what was refused.", "audit:list_all"),
        Leaf("show", "Show one entry with its digests.", "audit:show"),
        Leaf("export", "Write the trail as lines of JSON.", "audit:export"),
        Leaf("verify", "Find entries that were changed, moved, deleted or cut off.", "audit:verify"),
    ),
)

CONTEXT = Branch(
    "context",
    "Services by name, with their tokens.",
    (
        Leaf("add", "Keep a service under a name, and use it.", "contexts:add"),
        Leaf("use", "Use a context from now on.", "contexts:use"),
        Leaf("list", "List the contexts.", "contexts:list_all"),
        Leaf("show", "Show where a context leads.", "contexts:show"),
        Leaf("delete", "Forget a context and its token.", "contexts:delete"),
    ),
)

CERTIFICATES = Branch(
    "certificates",
    "The service's certificate authority, and the certificates that it issued.",
    (
        Leaf("init", "Make the service's certificate authority.", "certificates:init"),
        Leaf("show", "Show the authority of the service on this machine.", "certificates:show"),
        Leaf("rotate", "Roll the service's authority over to a new one.", "certificates:rotate"),
        Leaf("authority", "Get the authority's certificate from the service.", "certificates:authority"),
        Leaf("request", "Make a key and a certificate request on this machine.", "certificates:request"),
        Leaf("issue", "Have a switch's request signed.", "certificates:issue"),
        Leaf("enrol", "Have a switch's request signed for a one-time token.", "certificates:enrol"),
        Leaf("console", "Sign a web console's request.", "certificates:console"),
        Leaf("list", "List what was issued.", "certificates:list_all"),
        Leaf("revoke", "Make a certificate invalid, at once.", "certificates:revoke"),
    ),
)

DATABASE = Branch(
    "db",
    "The service's database.",
    (
        Leaf("upgrade", "Bring the database to this program's schema.", "service:upgrade"),
        Leaf("token", "Make a token straight in the database: the first one.", "service:create_token"),
        Leaf("backup", "Write all that the service knows to a file, while it runs.", "backup:backup"),
        Leaf("backup-key", "Make a key that opens encrypted backups.", "backup:backup_key"),
        Leaf("restore", "Put a backup back, also into the other kind of database.", "backup:restore"),
    ),
)
