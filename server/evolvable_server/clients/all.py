"""Every client that is known, by name."""

from evolvable_server.clients import claude_code, claude_desktop, codex, cursor, vscode

CLIENTS = {
    client.name: client
    for client in (claude_code.CLIENT, codex.CLIENT, claude_desktop.CLIENT, cursor.CLIENT, vscode.CLIENT)
}
