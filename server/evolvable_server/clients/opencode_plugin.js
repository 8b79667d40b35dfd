// Written by `evolvable connect opencode --hooks`; `evolvable disconnect opencode` removes it.
// It names the skill that fits a prompt, notes which skills were opened, and queues a finished session for review.
import { spawn } from "node:child_process"

const COMMAND = ["evolvable-hook"]
const ENVIRONMENT = {}
const SECONDS = 10
const NOTED = new Set(["skill", "task", "write", "edit", "apply_patch"])

const run = (event, payload) =>
  new Promise((resolve) => {
    let text = ""
    const [program, ...words] = COMMAND
    const child = spawn(program, [...words, event, "opencode"], {
      env: { ...process.env, ...ENVIRONMENT },
      stdio: ["pipe", "pipe", "ignore"],
    })
    const timer = setTimeout(() => child.kill(), SECONDS * 1000)
    const end = () => {
      clearTimeout(timer)
      resolve(text)
    }
    child.on("error", end)
    child.on("close", end)
    child.stdin.on("error", () => {})
    child.stdout.on("data", (part) => (text += part))
    child.stdin.end(JSON.stringify(payload))
  })

export const Evolvable = async ({ directory }) => {
  const children = new Set() // sessions of subagents belong to the one that started them
  return {
    event: async ({ event }) => {
      const about = event.properties ?? {}
      if (event.type === "session.created" && about.info?.parentID) children.add(about.info.id)
      if (event.type === "session.idle" && about.sessionID && !children.has(about.sessionID))
        await run("Stop", { session_id: about.sessionID, cwd: directory })
    },
    "chat.message": async (input, output) => {
      const last = output.parts.findLast((part) => part.type === "text" && !part.synthetic)
      if (!last || children.has(input.sessionID)) return
      const payload = { session_id: input.sessionID, cwd: directory, prompt: last.text, prompt_id: last.messageID }
      const answer = await run("UserPromptSubmit", payload)
      const text = answer && JSON.parse(answer).hookSpecificOutput?.additionalContext
      // A part of its own: the person's words stay as they were typed. Parts are ordered by their ids.
      if (text) output.parts.push({ ...last, id: last.id + "e", text, synthetic: true })
    },
    "tool.execute.after": async (input) => {
      const given = input.args ?? {}
      const opens = /skill\.md/i.test(given.filePath ?? given.command ?? "")
      if (NOTED.has(input.tool) || opens)
        await run("PostToolUse", {
          session_id: input.sessionID,
          cwd: directory,
          tool_name: input.tool,
          tool_use_id: input.callID,
          tool_input: given,
        })
    },
  }
}
