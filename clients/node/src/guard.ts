/** From when on a server may be used (section 9 of docs/protocol.md, rules G1 to G3). Times are in ms. */
export class Guard {
  /** When the server last said something. */
  heard = -Infinity;
  /** The run of the server, or its reign since a promotion. */
  run = '';
  /** When it was met, and when the one before it last spoke. */
  private known = 0;
  private before = -Infinity;

  /** Return when a server may be used that has told its run, and its uptime in seconds (-Infinity: that says nothing, Infinity: it is new). */
  meets(run: string, uptime: number, now: number, guard: number): number {
    if (run !== this.run) {
      this.before = this.heard;
      this.known = now;
      this.run = run;
    }
    this.heard = now;
    const aged = Math.max(now + guard + 1000 - uptime * 1000, this.before + guard);
    return Math.max(now, Math.min(this.known + guard, aged));
  }
}
