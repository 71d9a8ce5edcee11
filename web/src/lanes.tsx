// The lanes beside a list of checkpoints: one small drawing a row, from chains that the server made.
import type { ChainAnswer } from "./answers";

const STEP = 14;
export const laneWidth = (chains: ChainAnswer[]) => Math.min(8, 1 + Math.max(0, ...chains.map((one) => one.lane))) * STEP + 6;
const x = (lane: number) => 9 + Math.min(lane, 7) * STEP;
const top = (chain: ChainAnswer) => chain.ranges[0][0];
const bottom = (chain: ChainAnswer) => chain.joins ?? chain.ranges[chain.ranges.length - 1][1];
const holds = (chain: ChainAnswer, seq: number) => chain.ranges.some(([high, low]) => seq <= high && seq >= low);

export function Lanes({ chains, seq, height, head, ghost }: { chains: ChainAnswer[]; seq: number; height: number; head: boolean; ghost?: ChainAnswer }) {
  const kind = (one: ChainAnswer) => `lane-${one.lane % 6}${one === ghost ? " ghost" : ""}`;
  const mine = chains.find((one) => holds(one, seq));
  const middle = height / 2;
  return (
    <svg class="lanes" aria-hidden="true" width={laneWidth(chains)} height={height}>
      {chains.filter((one) => seq <= top(one) && seq >= bottom(one)).map((one) => {
        const from = seq === top(one) ? middle : 0;
        if (one.joins === seq && mine) {
          const line = `M${x(one.lane)} 0 C ${x(one.lane)} ${middle}, ${x(mine.lane)} 0, ${x(mine.lane)} ${middle}`;
          return <path key={`${one.lane}-${top(one)}`} d={line} class={`lane ${kind(one)}`} />;
        }
        const gap = one.gaps.includes(seq);
        const to = seq === bottom(one) && !gap ? middle : height;
        return (
          <g key={`${one.lane}-${top(one)}`}>
            <line x1={x(one.lane)} x2={x(one.lane)} y1={from} y2={gap ? middle : to} class={`lane ${kind(one)}`} />
            {gap && <line x1={x(one.lane)} x2={x(one.lane)} y1={middle} y2={to} class={`lane ${kind(one)} broken`} />}
          </g>
        );
      })}
      {mine && <circle cx={x(mine.lane)} cy={middle} r={head ? 5 : 3.5} class={`dot lane-${mine.lane % 6}${mine === ghost && seq === top(mine) ? " ghost" : ""} ${head ? "head" : ""}`} />}
    </svg>
  );
}
